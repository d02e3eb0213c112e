//! Users, read and written.

use std::path::Path;

use bench::Error;
use bench::postgres::{Durability, Postgres};
use bench::wrk::Requests;

use crate::programs::{API, Programs};
use crate::service::{Service, in_turn};

/// Users whose ids are requested.
const FEW: usize = 200;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Trains the API on SQLite.
///
/// # Errors
/// When something fails, or a request does.
pub fn on_sqlite(programs: &Programs) -> Result<(), Error> {
    let scratch = tempfile::tempdir()?;
    on(programs, scratch.path(), &format!("sqlite:{}", scratch.path().join("users.db").display()))
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
    programs.run(API, &["seed", "--count", "5000", "--database-url", database])?;
    let service = programs.serve(API, scratch, &["--database-url", database])?;
    let users = users(&service)?;
    let read = in_turn("GET", &users, &[], "", 200);
    service.load(&read)?;
    service.load(&in_turn("GET", &["/v1/users?limit=50".into(), "/v1/users?q=ada".into()], &[], "", 200))?;
    service.load(&written())?;
    let changed = r#"{"name":"Ada L"}"#;
    service.load(&in_turn(
        "PATCH",
        &users,
        &[("Content-Type", "application/merge-patch+json")],
        changed,
        200,
    ))?;
    let user = service.get(&users[0])?;
    let (_, user) = user.split_once("\r\n\r\n").unwrap_or_default();
    service.load(&in_turn("POST", &["/v1/users:validate".into()], &[JSON], &document(user), 200))?;
    service.load_by_tls(&users[0], 200, user.len() as u64)?;
    drop(service);
    let cached = programs.serve(API, scratch, &["--database-url", database, "--cache-bytes", "67108864"])?;
    cached.load(&read)
}

/// The paths of some users.
fn users(service: &Service) -> Result<Vec<String>, Error> {
    let list = service.get(&format!("/v1/users?limit={FEW}&fields=id"))?;
    let ids = list.split("\"id\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let users: Vec<String> = ids.map(|id| format!("/v1/users/{id}")).collect();
    assert_eq!(users.len(), FEW, "{list}");
    Ok(users)
}

/// Creates a user with each request.
fn written() -> Requests {
    let script = format!(
        "local at = 0\n\
         wrk.headers['{}'] = '{}'\n\
         function request()\n\
           at = at + 1\n\
           return wrk.format('POST', '/v1/users', nil, '{{\"email\":\"u' .. at .. '@example.org\",\"name\":\"Ada\"}}')\n\
         end\n",
        JSON.0, JSON.1
    );
    Requests::scripted("/v1/users", script, 201)
}

/// A user as a client sends one: without what the service sets, which comes first.
fn document(user: &str) -> String {
    format!("{{{}", user.find("\"email\"").map_or("", |at| &user[at..]))
}
