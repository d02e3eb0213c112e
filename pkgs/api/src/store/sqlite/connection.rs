//! Opening connections, with the settings of each kind.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::store::Error;

use super::file;

/// How long a statement waits for a lock that another process holds.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between attempts where SQLite itself does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// How many bytes of the file are memory-mapped, which saves a copy and a system call per page.
const MMAP_BYTES: i64 = 1 << 30;

/// The page size in bytes. Three typical documents fit in such a page. The default of 4 KiB would fit one and a half.
const PAGE_BYTES: i64 = 8_192;

/// The writer's page cache in KiB, as a negative `cache_size`.
const WRITER_CACHE_KIB: i64 = -64_000;

/// A reader's page cache in KiB. The memory map serves its reads, so only pages in the log need it.
const READER_CACHE_KIB: i64 = -1_024;

/// The size to which the log's file shrinks after it is written back, in bytes.
const LOG_BYTES: i64 = 64 << 20;

/// How many prepared statements a connection keeps.
const STATEMENTS: usize = 64;

/// Opens for writing. A missing file is created with its directories. The path has to be absolute, here and below:
/// SQLite takes a name that starts with `file:` for a URI, since it is built with `SQLITE_USE_URI`, whatever the flags.
pub fn writer(path: &Path) -> Result<Connection, Error> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        // If this fails, opening the file reports why.
        let _ = std::fs::create_dir_all(directory);
    }
    file::claim(path)?;
    let connection = Connection::open(path)?;
    // This has an effect only before the file has a first page.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mark: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if mark != file::APPLICATION_ID {
        // Set it before there is a log, so that everybody who opens the file sees the mark. An unmarked database may be
        // open in another process. It then gets its mark at a later start.
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

/// Sets the write-ahead log, which the file remembers. If another process is about to write, SQLite does not wait here:
/// this connection has already read, and readers are refused instead (sqlite.org/c3ref/busy_handler.html).
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
