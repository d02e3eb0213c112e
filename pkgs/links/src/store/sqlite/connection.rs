//! Opens connections, with the settings of each kind.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{Error, schema};

/// How long a statement waits for a lock that another process holds.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between attempts where SQLite itself does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// How many bytes of the file are memory-mapped, which saves a copy and a system call per page.
const MMAP_BYTES: i64 = 512 << 20;

/// The writer's page cache in KiB, as a negative `cache_size`.
const WRITER_CACHE_KIB: i64 = -64_000;

/// A reader's page cache in KiB. The memory map serves its reads, so only pages in the log need it.
const READER_CACHE_KIB: i64 = -512;

/// The size to which the log's file shrinks after it is written back, in bytes.
const LOG_BYTES: i64 = 64 << 20;

/// The mode of a new database, since it contains private targets. SQLite gives its log the same mode.
const MODE: u32 = 0o600;

/// How many prepared statements a connection keeps.
const STATEMENTS: usize = 64;

/// The absolute path of a file, for SQLite. It would take a name that starts with `file:` for a URI, whichever flags it
/// gets (sqlite.org/compile.html#use_uri), and so open another file than the one that was checked.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|_| Error::CannotOpen)
}

/// Opens the database for writing and migrates it. A read-only database is opened for reading, and the returned flag is
/// then false.
pub(super) fn writer(path: &Path) -> Result<(Connection, bool), Error> {
    let path = &absolute(path)?;
    if path.is_dir() {
        return Err(Error::Directory);
    }
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        // If this fails, opening the file reports why.
        let _ = std::fs::create_dir_all(directory);
    }
    match try_writer(path) {
        Err(error) if is_unwritable(&error) => {
            let connection = reader(path)?;
            if schema::is_complete(&connection)? { Ok((connection, false)) } else { Err(Error::ReadOnly) }
        }
        opened => opened.map(|connection| (connection, true)),
    }
}

fn try_writer(path: &Path) -> Result<Connection, Error> {
    if create(path).is_err() {
        // A foreign database is not even opened for writing, since that could clean up its log. If this check fails,
        // opening it for writing reports why.
        let look = Connection::open_with_flags(path, flags_to_read());
        if let Ok(Err(refused @ (Error::Foreign | Error::TooNew { .. }))) =
            look.map(|connection| schema::is_current(&connection))
        {
            return Err(refused);
        }
    }
    let mut connection = Connection::open(path)?;
    if connection.is_readonly("main")? {
        return Err(Error::ReadOnly);
    }
    schema::is_current(&connection)?;
    common(&connection, WRITER_CACHE_KIB)?;
    keep_a_log(&connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    schema::migrate(&mut connection)?;
    Ok(connection)
}

/// Sets the write-ahead log mode, which the file remembers. If another process is about to write, SQLite does not wait
/// here: this connection has already read, and SQLite returns an error to such a reader at once
/// (sqlite.org/c3ref/busy_handler.html).
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

fn flags_to_read() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Creates an empty file, which SQLite treats as a new database, if there is none.
pub(super) fn create(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path).map(drop)
}

/// Whether the database may still be readable after this error: no permission, a read-only file system, or no space for
/// the log.
fn is_unwritable(error: &Error) -> bool {
    matches!(error, Error::ReadOnly | Error::Full | Error::CannotOpen)
}

/// Opens for reading.
pub(super) fn reader(path: &Path) -> Result<Connection, Error> {
    let path = &absolute(path)?;
    let open = |file: &Path, flags: OpenFlags| -> Result<Connection, Error> {
        let connection = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        common(&connection, READER_CACHE_KIB)?;
        // The first real read shows whether the log is usable.
        schema::is_current(&connection)?;
        Ok(connection)
    };
    match open(path, OpenFlags::SQLITE_OPEN_READ_ONLY) {
        // Reading through the log needs its index file, which cannot be created in a read-only directory. Nobody can
        // write there either, so the file may be opened as immutable (sqlite.org/wal.html, section 5). This is not done
        // if there is a log, since its links would be missed. Nor is it done on a full disk, where space and writers
        // may appear at any time.
        Err(error)
            if !matches!(error, Error::Full) && is_unwritable(&error) && path.is_file() && !has_log(path) =>
        {
            let path = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
            let uri = format!("file:{path}?immutable=1");
            open(Path::new(&uri), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
        }
        opened => opened,
    }
}

/// Whether a log has links that are not in the file yet.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

fn common(connection: &Connection, cache_kib: i64) -> Result<(), Error> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "mmap_size", MMAP_BYTES)?;
    connection.pragma_update(None, "cache_size", cache_kib)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
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

    #[test]
    fn without_an_index_for_the_log_only_a_file_without_a_log_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("links.db");
        drop(writer(&path).unwrap());
        // SQLite does not follow a symbolic link there, so this denies the index even to root.
        std::os::unix::fs::symlink("nowhere", directory.path().join("links.db-shm")).unwrap();
        assert!(schema::is_current(&reader(&path).unwrap()).unwrap());
        std::fs::write(directory.path().join("links.db-wal"), "links that are not in the file yet").unwrap();
        assert!(reader(&path).is_err());
    }
}
