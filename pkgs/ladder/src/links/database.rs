//! SQLite: the file, and a look-up.

use std::path::Path;

use actix_web::HttpResponse;
use actix_web::http::header::LOCATION;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, OptionalExtension};

use crate::Error;

/// Links in the file: codes from `c1` to this.
pub const LINKS: u32 = 10_000;

/// A pool with r2d2's defaults: ten connections, each checked with a query before it is lent.
pub type Pool = r2d2::Pool<SqliteConnectionManager>;

/// Creates and fills the file, if it isn't there.
///
/// # Errors
/// When it can't be written.
pub fn prepare(path: &Path) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    let connection = Connection::open(path)?;
    connection.execute_batch(&format!(
        "BEGIN;
         CREATE TABLE links (code TEXT PRIMARY KEY, target TEXT NOT NULL);
         WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {LINKS})
         INSERT INTO links SELECT 'c' || n, 'https://example.com/some/landing/page?id=' || n FROM number;
         COMMIT;"
    ))?;
    Ok(())
}

/// Opens the pool.
///
/// # Errors
/// When the file can't be created or opened.
pub(super) fn open(path: &str, manager: SqliteConnectionManager) -> Result<Pool, Error> {
    prepare(Path::new(path))?;
    Ok(Pool::new(manager)?)
}

/// The target of a code, if there is one. `None` if the database doesn't answer.
pub(super) fn target(pool: &Pool, code: &str) -> Option<Option<String>> {
    let connection = pool.get().ok()?;
    let found = connection.query_row("SELECT target FROM links WHERE code = ?1", [code], |row| row.get(0));
    found.optional().ok()
}

/// The answer for a target.
pub(super) fn answer(target: Option<Option<String>>) -> HttpResponse {
    match target {
        Some(Some(target)) => HttpResponse::TemporaryRedirect().insert_header((LOCATION, target)).finish(),
        Some(None) => HttpResponse::NotFound().finish(),
        None => HttpResponse::ServiceUnavailable().finish(),
    }
}
