//! The schema of a file, and its migrations.
//!
//! Completed steps are recorded in `_sqlx_migrations`, as releases up to 0.1.0 did with sqlx, and as they expect. So a
//! file can move to this program and back to the previous one without an extra step.

use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use sha2::{Digest, Sha384};

use crate::store::{Error, Unusable};

/// A step. Its text never changes after its release, since its digest is in every file.
struct Migration {
    /// Counts up from 1.
    version: i64,
    /// What it does, for people.
    description: &'static str,
    sql: &'static str,
}

const MIGRATIONS: [Migration; 1] =
    [Migration { version: 1, description: "users", sql: include_str!("migrations/0001_users.sql") }];

/// The table of completed steps.
const NOTES: &str = "CREATE TABLE IF NOT EXISTS _sqlx_migrations (version BIGINT PRIMARY KEY, \
     description TEXT NOT NULL, installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, \
     success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL)";

/// Additions that are not steps, so that an older release, which refuses unknown steps, can use the file again.
const ADDITIONS: [(&str, &str); 1] = [(
    "key_uses",
    // The row is deleted with the key, whichever release revokes the key.
    "CREATE TABLE key_uses (
        key INTEGER PRIMARY KEY REFERENCES keys ON DELETE CASCADE,
        at  INTEGER NOT NULL                       -- Unix seconds, to a minute
    ) STRICT",
)];

/// Migrates the schema in one transaction. Of two processes that do so at once, the second finds nothing to do. An
/// up-to-date file is only read.
pub fn migrate(connection: &mut Connection) -> Result<(), Error> {
    if has_table(connection, "_sqlx_migrations")?
        && due(connection)?.is_empty()
        && wanted(connection)?.is_empty()
    {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(NOTES)?;
    for step in due(&transaction)? {
        let begun = Instant::now();
        transaction.execute_batch(step.sql)?;
        let took = i64::try_from(begun.elapsed().as_nanos()).unwrap_or(i64::MAX);
        transaction.execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (?1, ?2, TRUE, ?3, ?4)",
            params![step.version, step.description, Sha384::digest(step.sql).as_slice(), took],
        )?;
    }
    for addition in wanted(&transaction)? {
        transaction.execute_batch(addition)?;
    }
    Ok(transaction.commit()?)
}

fn has_table(connection: &Connection, name: &str) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    Ok(connection.query_row(sql, [name], |_| Ok(())).optional()?.is_some())
}

/// The SQL of the missing additions.
fn wanted(connection: &Connection) -> Result<Vec<&'static str>, Error> {
    let mut wanted = Vec::new();
    for (table, sql) in ADDITIONS {
        if !has_table(connection, table)? {
            wanted.push(sql);
        }
    }
    Ok(wanted)
}

/// The steps that still have to be done. It is an error if the file has unknown steps.
fn due(connection: &Connection) -> Result<Vec<&'static Migration>, Error> {
    let known = MIGRATIONS.last().map_or(0, |step| step.version);
    let sql = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut done = Vec::new();
    while let Some(row) = rows.next()? {
        let (version, success, checksum): (i64, bool, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        match MIGRATIONS.iter().find(|step| step.version == version) {
            None if version > known => return Err(Unusable::Newer { found: version, known }.into()),
            // Another program uses a table of the same name.
            None => return Err(Unusable::Foreign.into()),
            Some(step) if Sha384::digest(step.sql)[..] != checksum[..] => {
                return Err(Unusable::Foreign.into());
            }
            Some(_) if !success => return Err(Error::failed(format!("step {version} of its schema failed"))),
            Some(_) => done.push(version),
        }
    }
    Ok(MIGRATIONS.iter().filter(|step| !done.contains(&step.version)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Connection {
        Connection::open_in_memory().expect("it opens")
    }

    #[test]
    fn steps_count_up_from_one() {
        assert!(MIGRATIONS.iter().map(|step| step.version).eq(1..=MIGRATIONS.len() as i64));
    }

    #[test]
    fn a_file_is_migrated_once() {
        let mut connection = new();
        migrate(&mut connection).expect("it is new");
        migrate(&mut connection).expect("nothing is left to do");
        let notes = "SELECT count(*), min(version), max(success) FROM _sqlx_migrations";
        let notes: (i64, i64, bool) = connection
            .query_row(notes, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .expect("they are there");
        assert_eq!(notes, (1, 1, true));
    }

    #[test]
    fn what_others_have_done_is_refused_and_stays_as_it_is() {
        for (change, expected) in [
            ("UPDATE _sqlx_migrations SET checksum = x'00'", "the database of another program"),
            ("UPDATE _sqlx_migrations SET version = 0", "the database of another program"),
            ("UPDATE _sqlx_migrations SET version = 2", "a newer release of linerate-api (schema 2;"),
            ("UPDATE _sqlx_migrations SET success = 0", "the database failed"),
        ] {
            let mut connection = new();
            migrate(&mut connection).expect("it is new");
            connection.execute_batch(change).expect("the note is there");
            let error = migrate(&mut connection).expect_err(change);
            assert!(error.to_string().contains(expected), "{change}: {error}");
            assert!(connection.is_autocommit());
        }
    }

    #[test]
    fn a_file_of_before_has_what_is_added_and_is_none_of_a_newer_release() {
        let mut connection = new();
        migrate(&mut connection).expect("it is new");
        connection.execute_batch("DROP TABLE key_uses").expect("it is there");
        migrate(&mut connection).expect("it is one of before");
        assert!(has_table(&connection, "key_uses").expect("it is read"));
        let newest: i64 = connection
            .query_row("SELECT max(version) FROM _sqlx_migrations", [], |row| row.get(0))
            .expect("they are there");
        assert_eq!(newest, 1, "what a release from before refuses");
    }

    #[test]
    fn a_step_that_fails_leaves_nothing() {
        let mut connection = new();
        connection.execute_batch("CREATE TABLE keys (other)").expect("it is new");
        assert!(migrate(&mut connection).is_err());
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
            .expect("it is read");
        assert_eq!(tables, 1);
    }
}
