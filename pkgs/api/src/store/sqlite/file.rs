//! The database file: checks that it belongs to this program before anything is written, and restricts who may read it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::store::{Error, Unusable};

/// Marks a file as this program's: `lrAp` (sqlite.org/pragma.html#pragma_application_id).
pub const APPLICATION_ID: i32 = i32::from_be_bytes(*b"lrAp");

/// The start of a database file, and the position of its mark (sqlite.org/fileformat.html, section 1.3).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const MARK: usize = 68;

/// Tables of every database of this program, including those without a mark.
const TABLES: [&str; 5] = ["_sqlx_migrations", "users", "user_words", "claims", "keys"];

/// Checks that a file belongs to this program or to none. If it is missing, creates an empty one that only its owner
/// may read; SQLite gives the files beside it the same mode.
///
/// When it belongs to another program. It is then unchanged, and was not opened for writing.
pub fn claim(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Unusable::Directory.into());
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Unusable::File(error).into()),
    }
    let Some(head) = head(path).map_err(Unusable::File)? else { return Ok(()) };
    if !head.starts_with(MAGIC) {
        return Err(Unusable::NoDatabase.into());
    }
    let mark = head[MARK..].first_chunk().map_or(0, |mark| i32::from_be_bytes(*mark));
    match mark {
        APPLICATION_ID => Ok(()),
        0 => unmarked(path),
        _ => Err(Unusable::Foreign.into()),
    }
}

/// The first bytes of a file; None if it is empty.
fn head(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    File::open(path)?.take(100).read_to_end(&mut head)?;
    head.resize(if head.is_empty() { 0 } else { 100 }, 0);
    Ok(Some(head).filter(|head| !head.is_empty()))
}

/// Checks that a database without a mark is an old one of this program, or empty.
fn unmarked(path: &Path) -> Result<(), Error> {
    let connection = look(path)?;
    let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let tables: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    if tables.is_empty() || TABLES.iter().all(|known| tables.iter().any(|table| table == known)) {
        return Ok(());
    }
    Err(Unusable::Foreign.into())
}

/// Opens for inspection. Without a write-ahead log, the file is complete, and can be opened so that no file is created
/// beside it.
fn look(path: &Path) -> Result<Connection, Error> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if Path::new(&log).exists() {
        return Ok(Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?);
    }
    // A URI needs these encoded (sqlite.org/uri.html). A path that is not text cannot be in a URI.
    let path = std::path::absolute(path).map_err(Unusable::File)?;
    let text = path.to_str().ok_or(Unusable::Name)?;
    let text = text.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(format!("file:{text}?immutable=1"), flags)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn refused(path: &Path) -> String {
        let error = claim(path).expect_err("it is refused");
        assert!(matches!(error, Error::Unusable(_)), "{error:?}");
        error.to_string()
    }

    #[test]
    fn what_is_anothers_is_refused_and_stays_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("an other?#%.db");
        for (sql, ours) in [
            ("CREATE TABLE links (code); INSERT INTO links VALUES (1)", false),
            ("CREATE TABLE links (code); PRAGMA journal_mode = WAL", false),
            ("CREATE TABLE users (id); CREATE TABLE keys (id)", false),
            ("CREATE TABLE links (code); PRAGMA application_id = 7", false),
            ("PRAGMA application_id = 7; CREATE TABLE x (y); DROP TABLE x", false),
            ("CREATE TABLE x (y); DROP TABLE x", true),
        ] {
            Connection::open(&path).and_then(|database| database.execute_batch(sql)).expect("it is made");
            let before = fs::read(&path).expect("it is there");
            assert_eq!(claim(&path).is_ok(), ours, "{sql}");
            assert_eq!(fs::read(&path).expect("it is there"), before, "{sql}");
            fs::remove_file(&path).expect("it is there");
            assert_eq!(
                fs::read_dir(directory.path()).expect("a directory").count(),
                0,
                "nothing is beside it"
            );
        }
        fs::write(&path, "users: none\n").expect("a file");
        assert_eq!(refused(&path), "it is no SQLite database");
        assert_eq!(refused(directory.path()), "it is a directory");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "users: none\n");
    }

    #[test]
    fn a_file_that_is_made_is_private() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("new.db");
        claim(&path).expect("nobody's");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        claim(&path).expect("still nobody's");
        assert!(refused(&path.join("below")).contains("Not a directory"));
    }
}
