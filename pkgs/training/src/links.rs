//! Redirects, and what is done to links.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use bench::Error;
use bench::postgres::{Durability, Postgres};
use bench::wrk::Requests;

use crate::programs::{LINKS, Programs};
use crate::service::{Service, in_turn};

const COUNT: usize = 10_000;

/// Trains links on SQLite.
///
/// # Errors
/// When something fails, or a request does.
pub fn on_sqlite(programs: &Programs) -> Result<(), Error> {
    let scratch = tempfile::tempdir()?;
    on(programs, scratch.path(), &scratch.path().join("links.db").display().to_string())
}

/// Trains it on PostgreSQL.
///
/// # Errors
/// As [`on_sqlite`].
pub fn on_postgres(programs: &Programs) -> Result<(), Error> {
    let scratch = tempfile::tempdir()?;
    let postgres = Postgres::start(Durability::None, &[])?;
    on(programs, scratch.path(), &postgres.url("postgres"))
}

fn on(programs: &Programs, scratch: &Path, database: &str) -> Result<(), Error> {
    let list = scratch.join("links.csv");
    let mut csv = "code,target\n".to_owned();
    for number in 0..COUNT {
        let _ = writeln!(csv, "l{number},https://example.com/some/landing/page?id={number}&ref=shortlink");
    }
    fs::write(&list, csv).map_err(Error::file(&list))?;
    programs.run(LINKS, &["import", "--database", database, &list.display().to_string()])?;
    let key = programs.run(LINKS, &["key", "add", "training", "--scope", "write", "--database", database])?;
    let service = programs.serve(LINKS, scratch, &["--database", database])?;
    visitors(&service)?;
    operators(&service, &key)?;
    drop(service);
    let exported = programs.run(LINKS, &["export", "--database", database])?;
    assert!(exported.len() > COUNT, "every link is a line");
    // Without a cache, every redirect reads the database.
    let service = programs.serve(LINKS, scratch, &["--database", database, "--cache-bytes", "0"])?;
    service.load(&redirects())
}

/// Redirects to known links, in another order than that of the import.
fn redirects() -> Requests {
    let codes: Vec<String> = (0..COUNT).map(|at| format!("/l{}", at * 7_919 % COUNT)).collect();
    in_turn("GET", &codes, &[], "", 307)
}

fn visitors(service: &Service) -> Result<(), Error> {
    service.load(&redirects())?;
    service.load(&Requests::pipelined("/l1", 16, 307))?;
    service.load(&Requests::closing("/l1", 307))?;
    service.load(&Requests::same("/unknown", 404))?;
    service.load_by_tls("/l1", 307, 0)
}

/// Links are made, listed and read by the API.
fn operators(service: &Service, key: &str) -> Result<(), Error> {
    let bearer = format!("Bearer {key}");
    let fields = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let one = |path: &str| vec![format!("/api/v1/{path}")];
    let made = in_turn("POST", &one("links"), &fields, r#"{"target":"https://example.com/made"}"#, 201);
    service.load_admin(&made)?;
    service.load_admin(&in_turn("GET", &one("links?limit=100"), &fields[..1], "", 200))?;
    service.load_admin(&in_turn("GET", &one("links/l1"), &fields[..1], "", 200))
}
