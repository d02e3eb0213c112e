//! Opening connections, with the settings of each kind.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::store::Error;

use super::file;

/// How long a statement waits for a lock that another process holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Between looks where SQLite does not wait itself.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Bytes of the file read through a memory map, which spares a copy and a system call a page.
const MMAP_BYTES: i64 = 1 << 30;

/// Bytes of a page: three usual documents fit in one, where the default of 4 KiB has room for one and a half.
const PAGE_BYTES: i64 = 8_192;

/// Page cache of the writer, in KiB as a negative `cache_size` has it.
const WRITER_CACHE_KIB: i64 = -64_000;

/// Page cache of a reader, in KiB: the map serves its reads, so only what is in the log needs room.
const READER_CACHE_KIB: i64 = -1_024;

/// The size the log's file shrinks to once it has been written back, in bytes.
const LOG_BYTES: i64 = 64 << 20;

/// Statements kept prepared on a connection.
const STATEMENTS: usize = 64;

/// Opens for writing; a file that is not there is created, with the directories above it.
pub fn writer(path: &Path) -> Result<Connection, Error> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        // Where this fails, opening the file tells why.
        let _ = std::fs::create_dir_all(directory);
    }
    file::claim(path)?;
    // Not as a URI, which is SQLite's reading of a name that starts with `file:`.
    let connection = Connection::open_with_flags(path, OpenFlags::default() - OpenFlags::SQLITE_OPEN_URI)?;
    // Before the file has a first page, or without effect.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mark: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if mark != file::APPLICATION_ID {
        // Before there is a log, so that whoever looks at the file sees it. A database from before there were marks may
        // be open elsewhere, and gets its mark once it is not.
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "application_id", file::APPLICATION_ID)?;
    }
    common(&connection, WRITER_CACHE_KIB)?;
    keep_a_log(&connection)?;
    // A commit is on the disk when it returns (sqlite.org/pragma.html#pragma_synchronous).
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Keeps a write-ahead log, as the file says from then on. Where another process is about to write, SQLite does not wait
/// for it here: it has read by then, and who reads is refused instead (sqlite.org/c3ref/busy_handler.html).
fn keep_a_log(connection: &Connection) -> rusqlite::Result<()> {
    let begun = Instant::now();
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < BUSY_TIMEOUT =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            done => return done,
        }
    }
}

/// Opens for reading by one thread.
pub fn reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    common(&connection, READER_CACHE_KIB)?;
    Ok(connection)
}

fn common(connection: &Connection, cache_kib: i64) -> Result<(), Error> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "cache_size", cache_kib)?;
    connection.pragma_update(None, "mmap_size", MMAP_BYTES)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_that_writes_is_waited_for_when_a_database_is_opened() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.db");
        drop(writer(&path).expect("it is made"));
        let other = Connection::open(&path).expect("it opens");
        other
            .pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))
            .expect("nobody else is there");
        other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
        let opening = std::thread::spawn(move || writer(&path).map(drop));
        std::thread::sleep(Duration::from_millis(300));
        other.execute_batch("ROLLBACK").expect("it ends");
        drop(other);
        opening.join().expect("no panic").expect("it is waited for");
    }
}
