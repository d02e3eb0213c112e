//! Many rows by one statement, which takes half as long for each as a statement of its own.

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, params_from_iter};

use crate::store::Error;

/// The rows of a statement. More gain nothing.
const AT_ONCE: usize = 32;

/// Adds rows to a table; `sums` says what becomes of those that are there. Rows in the order of their keys share pages.
pub(in crate::store::sqlite) fn add<'r, T, const COLUMNS: usize>(
    connection: &Connection,
    table: &str,
    sums: &str,
    rows: &'r [T],
    values: impl Fn(&'r T) -> [ToSqlOutput<'r>; COLUMNS],
) -> Result<(), Error> {
    let row = format!("({})", ["?"; COLUMNS].join(", "));
    let statement = |count| {
        let rows = vec![row.as_str(); count].join(", ");
        connection
            .prepare_cached(&format!("INSERT INTO {table} VALUES {rows} ON CONFLICT DO UPDATE SET {sums}"))
    };
    let (many, rest) = rows.as_chunks::<AT_ONCE>();
    if !many.is_empty() {
        let mut add = statement(AT_ONCE)?;
        for rows in many {
            add.execute(params_from_iter(rows.iter().flat_map(&values)))?;
        }
    }
    if !rest.is_empty() {
        let mut add = statement(1)?;
        for row in rest {
            add.execute(params_from_iter(values(row)))?;
        }
    }
    Ok(())
}
