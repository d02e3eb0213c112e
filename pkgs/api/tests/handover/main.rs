//! The real `linerate-api serve`, where one process takes over from another on the same database.
#![forbid(unsafe_code)]

// Shared with the listener's tests, which need more of them.
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/load.rs"]
mod load;
#[path = "../serve/patience.rs"]
mod patience;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/takeover.rs"]
mod takeover;

use std::path::Path;

use bench::postgres::{Durability, Postgres};
use load::LoadRequest;
use patience::PATIENT;
use takeover::{Program, Writers, ask};
use testkit::Server;

const BINARY: &str = env!("CARGO_BIN_EXE_linerate-api");

fn flags(database: &str) -> Vec<String> {
    ["--database-url", database].iter().chain(&PATIENT).map(|flag| (*flag).to_owned()).collect()
}

fn program() -> Program {
    Program::new(BINARY, |directory| flags(&format!("sqlite:{}", directory.join("users.db").display())))
}

/// The same on a PostgreSQL.
fn program_on(postgres: &Postgres) -> Program {
    let database = format!("{}?connect_timeout=60", postgres.url("users"));
    Program::new(BINARY, move |_: &Path| flags(&database))
}

/// A request for users that nobody writes.
fn load_request() -> LoadRequest {
    LoadRequest::of("/v1/users?tag=none", r#"{"users":[],"next":null}"#)
}

/// Three processes take over one after the other while clients read and write. No request fails, and in the end
/// everything acknowledged is stored, whichever process acknowledged it. Returns the number of writes, and the last
/// process.
async fn take_over_in_a_row(program: &Program) -> (usize, Server) {
    let clear = program.clear;
    // A server has to run before clients send requests.
    let first = program.start();
    let writers = Writers::start(move |writer, number| {
        let user = format!(r#"{{"email":"w{writer}n{number}@a.example","name":"n"}}"#);
        let (status, answer) = ask(clear, "POST", "/v1/users", "", &user);
        assert_eq!(status, 201, "{answer}");
        let user: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        user["id"].as_str().expect("an id").to_owned()
    });
    let (last, _) = takeover::three_in_a_row(program, load_request(), Some(first)).await;
    let written = writers.finish();
    for id in &written {
        assert_eq!(ask(clear, "GET", &format!("/v1/users/{id}"), "", "").0, 200, "{id}");
    }
    (written.len(), last)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_in_a_row_take_over_and_no_request_fails_and_no_write_is_lost() {
    take_over_in_a_row(&program()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_in_a_row_take_over_on_postgresql_and_no_request_fails_and_no_write_is_lost() {
    let postgres = Postgres::start(Durability::Full, &[]).expect("PostgreSQL starts");
    postgres.create_database("users").expect("it runs");
    let (written, last) = take_over_in_a_row(&program_on(&postgres)).await;
    let stored = postgres.execute("users", "SELECT count(*) FROM users").expect("it runs");
    assert_eq!(stored.trim(), written.to_string(), "each write is stored, once");
    drop(last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_or_is_killed_changes_nothing() {
    takeover::one_that_fails_or_is_killed_changes_nothing(&program(), load_request()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_or_is_killed_on_postgresql_changes_nothing() {
    let postgres = Postgres::start(Durability::None, &[]).expect("PostgreSQL starts");
    postgres.create_database("users").expect("it runs");
    takeover::one_that_fails_or_is_killed_changes_nothing(&program_on(&postgres), load_request()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_loses_its_own_alone() {
    takeover::one_that_is_killed_loses_its_own_alone(&program(), load_request()).await;
}
