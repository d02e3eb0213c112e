//! Copies a whole database with COPY: reads a consistent snapshot, or fills an empty database.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use postgres::types::{ToSql, Type};
use postgres::{Background, Pool, Session, copy};

use crate::store::Error;
use crate::store::database_copy::{Filling, Kind, Row, Snapshot, TABLES, Table, Value};

use super::clicks;
use super::values::count;

/// Time limit for adding up the clicks that servers have counted so far.
const ADDED_UP: Duration = Duration::from_secs(10);

/// Pause between checks.
const PAUSE: Duration = Duration::from_millis(50);

/// Removes the timeouts, including the one for waiting on the other database.
const PATIENT: &str = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";

/// Tables that only PostgreSQL has.
const OWN: [&str; 2] = ["limits", "click_flushes"];

/// Reads a consistent snapshot of a whole database, including the clicks that servers have counted so far.
pub fn snapshot<T>(
    background: &Background,
    pool: &Pool,
    read: impl FnOnce(&mut (dyn Snapshot + Send)) -> Result<T, Error>,
) -> Result<T, Error> {
    let begun = Instant::now();
    loop {
        let session = background.block_on(pool.get())?;
        let transaction = background.block_on(async {
            while clicks::add_up(pool).await? {}
            let transaction = session.begin().await?;
            transaction.batch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
            transaction.batch(PATIENT).await?;
            Ok::<_, Error>(transaction)
        })?;
        let sql = "SELECT 1 FROM click_flushes LIMIT 1";
        if background.block_on(transaction.query(sql, &[]))?.is_empty() {
            let done = read(&mut Whole { background, session: &transaction })?;
            background.block_on(transaction.commit())?;
            return Ok(done);
        }
        // More clicks have come, or another node is adding them up.
        background.block_on(transaction.rollback())?;
        if begun.elapsed() > ADDED_UP {
            return Err(Error::Busy);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Fills an empty database in one transaction, unless `fill` fails.
pub fn fill<T>(
    background: &Background,
    pool: &Pool,
    fill: impl FnOnce(&mut dyn Filling) -> Result<T, Error>,
) -> Result<T, Error> {
    let session = background.block_on(pool.get())?;
    let tables: Vec<&str> = TABLES.iter().map(|table| table.name).chain(OWN).collect();
    let transaction = background.block_on(async {
        let transaction = session.begin().await?;
        transaction.batch(PATIENT).await?;
        // Readers continue. Writers wait, and then find the database filled.
        transaction.batch(&format!("LOCK TABLE {} IN EXCLUSIVE MODE", tables.join(", "))).await?;
        for table in TABLES.iter().map(|table| table.name).chain(OWN) {
            if !transaction.query(&format!("SELECT 1 FROM {table} LIMIT 1"), &[]).await?.is_empty() {
                return Err(Error::NotEmpty(table));
            }
        }
        // One row in the feed says that everything has changed, instead of one row per link.
        transaction.batch("ALTER TABLE links DISABLE TRIGGER noted_new").await?;
        Ok(transaction)
    })?;
    let filled = fill(&mut Whole { background, session: &transaction })?;
    background.block_on(async {
        transaction.batch("ALTER TABLE links ENABLE TRIGGER noted_new").await?;
        transaction.batch("INSERT INTO changes (topic, keys) VALUES ('all', '{}')").await?;
        // Otherwise the first statements would be planned as if the tables were empty.
        transaction.batch(&format!("ANALYZE {}", tables.join(", "))).await?;
        transaction.commit().await
    })?;
    Ok(filled)
}

/// A session within a transaction.
struct Whole<'a> {
    background: &'a Background,
    session: &'a Session,
}

impl Whole<'_> {
    fn number(&self, sql: &str) -> Result<i64, Error> {
        let rows = self.background.block_on(self.session.query_once(sql, &[]))?;
        Ok(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
    }
}

impl Snapshot for Whole<'_> {
    fn count(&mut self, table: &Table) -> Result<u64, Error> {
        Ok(count(self.number(&format!("SELECT count(*) FROM {}", table.name))?))
    }

    fn read(&mut self, table: &Table, visit: &mut dyn FnMut(Row) -> bool) -> Result<(), Error> {
        // Reads all integers as the widest type, and words as one text.
        let columns = table.columns.iter().map(|(name, kind)| match kind {
            Kind::Number | Kind::Noted | Kind::Text | Kind::Bytes => (*name).to_owned(),
            Kind::Day | Kind::Small => format!("{name}::int8"),
            Kind::Flag => format!("{name}::int4::int8"),
            Kind::Words => format!("array_to_string({name}, ' ')"),
        });
        let types: Vec<Type> = table.columns.iter().map(|(_, kind)| read_as(*kind)).collect();
        let sql = format!(
            "COPY (SELECT {} FROM {} ORDER BY {}) TO STDOUT (FORMAT binary)",
            columns.collect::<Vec<_>>().join(", "),
            table.name,
            table.order()
        );
        self.background.block_on(async {
            let mut rows = Box::pin(copy::read(self.session, &sql, &types).await?);
            while let Some(row) = rows.next().await {
                let row = row?;
                let values = types.iter().enumerate().map(|(column, of)| match *of {
                    Type::INT8 => Ok(row.try_get::<Option<i64>>(column)?.map(Value::Number)),
                    Type::BYTEA => Ok(row.try_get::<Option<Vec<u8>>>(column)?.map(Value::Bytes)),
                    _ => Ok(row.try_get::<Option<String>>(column)?.map(Value::Text)),
                });
                let values = values.map(|value| value.map(|value| value.unwrap_or(Value::Null)));
                if !visit(values.collect::<Result<_, Error>>()?) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn last_number(&mut self, table: &Table) -> Result<i64, Error> {
        let sql = format!("SELECT pg_get_serial_sequence('{}', 'id')", table.name);
        let rows = self.background.block_on(self.session.query_once(&sql, &[]))?;
        let sequence: String = rows.first().map_or(Ok(String::new()), |row| row.try_get(0))?;
        self.number(&format!("SELECT last_value - (NOT is_called)::int4 FROM {sequence}"))
    }
}

impl Filling for Whole<'_> {
    fn write(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<(), Error> {
        let sql = format!("COPY {} ({}) FROM STDIN (FORMAT binary)", table.name, table.names().join(", "));
        let types: Vec<Type> = table.columns.iter().map(|(_, kind)| written_as(*kind)).collect();
        let mut failed = None;
        let rows = rows.map_while(|row| {
            let values =
                row.into_iter().zip(table.columns).map(|(value, column)| to_sql(value, table, *column));
            values.collect::<Result<Vec<_>, Error>>().map_err(|error| failed = Some(error)).ok()
        });
        let written = self.background.block_on(copy::write(self.session, &sql, &types, rows));
        match failed {
            Some(error) => Err(error),
            None => Ok(written.map(drop)?),
        }
    }

    fn number_after(&mut self, table: &Table, last: i64) -> Result<(), Error> {
        // This is rolled back with the transaction, unlike `setval`.
        let next = last.saturating_add(1);
        let sql = format!("ALTER TABLE {} ALTER COLUMN id RESTART WITH {next}", table.name);
        Ok(self.background.block_on(self.session.batch(&sql))?)
    }
}

const fn read_as(kind: Kind) -> Type {
    match kind {
        Kind::Number | Kind::Noted | Kind::Day | Kind::Small | Kind::Flag => Type::INT8,
        Kind::Text | Kind::Words => Type::TEXT,
        Kind::Bytes => Type::BYTEA,
    }
}

const fn written_as(kind: Kind) -> Type {
    match kind {
        Kind::Number | Kind::Noted => Type::INT8,
        Kind::Day => Type::INT4,
        Kind::Small => Type::INT2,
        Kind::Flag => Type::BOOL,
        Kind::Text => Type::TEXT,
        Kind::Words => Type::TEXT_ARRAY,
        Kind::Bytes => Type::BYTEA,
    }
}

/// A value as its column's type. A value of the wrong kind becomes NULL, which the digests reveal.
fn to_sql(
    value: Value,
    table: &Table,
    (column, kind): (&'static str, Kind),
) -> Result<Box<dyn ToSql + Sync + Send>, Error> {
    let refused = |what: &str| Error::field(column, format!("a row of {} has {what}", table.name));
    let (number, text, bytes) = match value {
        Value::Null => (None, None, None),
        Value::Number(number) => (Some(number), None, None),
        Value::Text(text) => (None, Some(text), None),
        Value::Bytes(bytes) => (None, None, Some(bytes)),
    };
    if text.as_ref().is_some_and(|text| text.contains('\0')) {
        return Err(refused("a NUL, which no text has in PostgreSQL"));
    }
    let too_wide = |_| refused("a greater number than its column has in PostgreSQL");
    Ok(match kind {
        Kind::Number | Kind::Noted => Box::new(number),
        Kind::Day => Box::new(number.map(i32::try_from).transpose().map_err(too_wide)?),
        Kind::Small => Box::new(number.map(i16::try_from).transpose().map_err(too_wide)?),
        Kind::Flag => Box::new(number.map(|flag| flag != 0)),
        Kind::Text => Box::new(text),
        Kind::Words => {
            Box::new(text.map(|text| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()))
        }
        Kind::Bytes => Box::new(bytes),
    })
}
