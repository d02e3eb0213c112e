//! Reads a consistent snapshot of a whole file, or fills an empty one.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, ToSql, params, params_from_iter};

use super::{connection, schema};
use crate::store::Error;
use crate::store::database_copy::{Filling, Kind, Row, Snapshot, TABLES, Table, Value};

/// Reads a consistent snapshot of a whole file.
pub fn snapshot<T>(
    path: &Path,
    read: impl FnOnce(&mut (dyn Snapshot + Send)) -> Result<T, Error>,
) -> Result<T, Error> {
    let connection = connection::reader(path)?;
    connection.execute_batch("BEGIN")?;
    // The first read fixes the snapshot.
    schema::is_current(&connection)?;
    read(&mut Whole(connection))
}

/// Fills an empty file in one transaction, unless `fill` fails.
pub fn fill<T>(path: &Path, fill: impl FnOnce(&mut dyn Filling) -> Result<T, Error>) -> Result<T, Error> {
    let (connection, is_writable) = connection::writer(path)?;
    if !is_writable {
        return Err(Error::ReadOnly);
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for table in &TABLES {
        if connection.prepare(&format!("SELECT 1 FROM {}", table.name))?.exists([])? {
            return Err(Error::NotEmpty(table.name));
        }
    }
    let mut whole = Whole(connection);
    let filled = fill(&mut whole)?;
    whole.0.execute_batch("COMMIT")?;
    Ok(filled)
}

/// A connection in a transaction, which is rolled back when dropped.
struct Whole(Connection);

impl Snapshot for Whole {
    fn count(&mut self, table: &Table) -> Result<u64, Error> {
        Ok(self.0.query_row(&format!("SELECT count(*) FROM {}", table.name), [], |row| row.get(0))?)
    }

    fn read(&mut self, table: &Table, visit: &mut dyn FnMut(Row) -> bool) -> Result<(), Error> {
        let sql =
            format!("SELECT {} FROM {} ORDER BY {}", table.names().join(", "), table.name, table.order());
        let mut statement = self.0.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let values = (0..table.columns.len()).map(|column| match row.get_ref(column)? {
                ValueRef::Null => Ok(Value::Null),
                ValueRef::Integer(number) => Ok(Value::Number(number)),
                ValueRef::Blob(bytes) => Ok(Value::Bytes(bytes.to_vec())),
                // Tables are strict, so no column has a real number.
                ValueRef::Text(_) | ValueRef::Real(_) => Ok(Value::Text(row.get(column)?)),
            });
            if !visit(values.collect::<rusqlite::Result<_>>()?) {
                break;
            }
        }
        Ok(())
    }

    fn last_number(&mut self, table: &Table) -> Result<i64, Error> {
        let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
        Ok(self.0.query_row(sql, [table.name], |row| row.get(0)).optional()?.unwrap_or(0))
    }
}

impl Filling for Whole {
    fn write(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<(), Error> {
        let names = table.names().join(", ");
        let marks = vec!["?"; table.columns.len()].join(", ");
        let mut insert = self.0.prepare(&format!("INSERT INTO {} ({names}) VALUES ({marks})", table.name))?;
        let mut tag = self.0.prepare("INSERT INTO link_tags VALUES (?1, ?2)")?;
        for row in rows {
            insert.execute(params_from_iter(row.iter().map(as_sql)))?;
            for ((_, kind), value) in table.columns.iter().zip(&row) {
                if let (Kind::Words, Value::Text(words)) = (kind, value) {
                    // The index of tags is a separate table.
                    for word in words.split_ascii_whitespace() {
                        tag.execute(params![word, as_sql(&row[0])])?;
                    }
                }
            }
        }
        Ok(())
    }

    fn number_after(&mut self, table: &Table, last: i64) -> Result<(), Error> {
        self.0.execute("DELETE FROM sqlite_sequence WHERE name = ?1", [table.name])?;
        self.0.execute("INSERT INTO sqlite_sequence VALUES (?1, ?2)", params![table.name, last])?;
        Ok(())
    }
}

fn as_sql(value: &Value) -> &dyn ToSql {
    match value {
        Value::Null => &rusqlite::types::Null,
        Value::Number(number) => number,
        Value::Text(text) => text,
        Value::Bytes(bytes) => bytes,
    }
}
