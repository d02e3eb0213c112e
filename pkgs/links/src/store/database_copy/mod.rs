//! Copies a whole database into an empty one of either kind.
//!
//! The source is read in one consistent snapshot while it stays in use. The target is filled in one transaction. It is
//! then read back: if any table differs, the transaction is rolled back. Finally the source is read again, to report
//! what was written in the meantime and is not in the copy.

mod digest;
mod tables;

use std::sync::mpsc;
use std::thread;

use serde::Serialize;

use super::Error;

pub use digest::{Digest, Digester};
pub use tables::{Kind, Row, TABLES, Table, Value};

/// Rows per batch. At most [`BATCHES`] batches wait to be written.
const BATCH: usize = 1_000;
const BATCHES: usize = 4;

/// A consistent snapshot of a database.
pub trait Snapshot {
    /// The number of a table's rows.
    fn count(&mut self, table: &Table) -> Result<u64, Error>;

    /// Passes the rows of a table to `visit` in the order of its key, until that returns false. A snapshot cannot be
    /// used afterwards.
    fn read(&mut self, table: &Table, visit: &mut dyn FnMut(Row) -> bool) -> Result<(), Error>;

    /// The last number that a numbered table has assigned; 0 if none.
    fn last_number(&mut self, table: &Table) -> Result<i64, Error>;
}

/// A database that is filled in one transaction. Reading it returns what was written.
pub trait Filling: Snapshot {
    /// Writes rows into a table.
    fn write(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<(), Error>;

    /// Makes a numbered table continue after this number.
    fn number_after(&mut self, table: &Table, last: i64) -> Result<(), Error>;
}

/// The result of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Migrated {
    /// Each table, which is the same on both sides.
    pub tables: Vec<MigratedTable>,
    /// Tables that were changed in the source since it was read, with their current content. These changes are not in
    /// the copy.
    pub written_since: Vec<MigratedTable>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigratedTable {
    /// Its name.
    pub table: &'static str,
    /// Its rows.
    pub rows: u64,
    /// The SHA-256 of the rows in their order, in hexadecimal digits.
    pub sha256: String,
}

impl MigratedTable {
    fn new(table: &Table, Digest { rows, sha256 }: Digest) -> Self {
        Self { table: table.name, rows, sha256 }
    }
}

/// Called with a table's name, how many of its rows are written, and their total.
pub type OnRows<'a> = &'a mut dyn FnMut(&'static str, u64, u64);

/// Copies all tables.
pub fn copy(
    from: &mut (dyn Snapshot + Send),
    into: &mut dyn Filling,
    on_rows: OnRows<'_>,
) -> Result<Vec<MigratedTable>, Error> {
    let mut copied = Vec::with_capacity(TABLES.len());
    for table in &TABLES {
        let read = copy_table(from, into, table, on_rows)?;
        if table.is_numbered {
            into.number_after(table, from.last_number(table)?)?;
        }
        if digest(into, table)? != read {
            return Err(Error::Differs(table.name));
        }
        copied.push(MigratedTable::new(table, read));
    }
    Ok(copied)
}

/// Copies a table. Returns the digest of what was read.
fn copy_table(
    from: &mut (dyn Snapshot + Send),
    into: &mut dyn Filling,
    table: &'static Table,
    on_rows: OnRows<'_>,
) -> Result<Digest, Error> {
    let total = from.count(table)?;
    on_rows(table.name, 0, total);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel::<Vec<Row>>(BATCHES);
        let reading = scope.spawn(move || {
            let (mut digester, digested) = (Digester::default(), table.digested());
            let mut batch = Vec::with_capacity(BATCH);
            from.read(table, &mut |row| {
                digester.add(&row[..digested]);
                batch.push(row);
                // After a write error, the receiver is gone; this ends the read.
                batch.len() < BATCH
                    || sender.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))).is_ok()
            })?;
            let _ = sender.send(batch);
            Ok(digester.finish())
        });
        let mut written = 0;
        let mut batches = receiver.into_iter().inspect(|batch| {
            written += batch.len() as u64;
            on_rows(table.name, written, total);
        });
        let wrote = into.write(table, &mut batches.by_ref().flatten());
        drop(batches);
        let read: Result<Digest, Error> =
            reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // A read error goes first: what was written is then incomplete.
        let read = read?;
        wrote.map(|()| read)
    })
}

/// Tables of a source that have changed since they were copied.
pub fn written_since(from: &mut dyn Snapshot, copied: &[MigratedTable]) -> Result<Vec<MigratedTable>, Error> {
    let mut changed = Vec::new();
    for (table, copied) in TABLES.iter().zip(copied) {
        let now = MigratedTable::new(table, digest(from, table)?);
        if now != *copied {
            changed.push(now);
        }
    }
    Ok(changed)
}

fn digest(of: &mut (impl Snapshot + ?Sized), table: &Table) -> Result<Digest, Error> {
    let (mut digester, digested) = (Digester::default(), table.digested());
    of.read(table, &mut |row| {
        digester.add(&row[..digested]);
        true
    })?;
    Ok(digester.finish())
}
