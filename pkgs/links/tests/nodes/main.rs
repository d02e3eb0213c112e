//! Two servers on one PostgreSQL: what each knows of the other's writes, and what happens to links, clicks and limits
//! when a server or the database is killed. Runs the real binary.

mod coherence;
mod commands;
mod crash;
#[path = "../http/mod.rs"]
#[allow(dead_code)]
mod http;
mod keys;
mod limits;
mod migrate;
mod outage;
#[path = "../survive/server.rs"]
#[allow(dead_code)]
mod server;
mod traces;

use std::time::Duration;

use bench::postgres::{Durability, Postgres};

use crate::http::Client;
use crate::server::{Place, Server};

/// The bound for outdated links in these tests.
const STALENESS: Duration = Duration::from_millis(500);

/// Longer than any step of these tests takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A PostgreSQL, and the flags of servers that use it.
fn start(durability: Durability) -> (Postgres, Place) {
    let postgres = Postgres::start(durability, &[]).expect("PostgreSQL starts");
    let place = Place::at(postgres.url("postgres"));
    (postgres, place)
}

/// A server with several workers.
fn node(place: &Place, flags: &[&str]) -> Server {
    let staleness = STALENESS.as_millis().to_string();
    place.serve(&[&["--staleness", &staleness, "--workers", "2"], flags].concat())
}

/// The answer for a code: its status, and its target.
fn ask(client: &mut Client, code: &str) -> (u16, Option<String>) {
    let answer = client.get(code).expect("the server answers");
    (answer.status, answer.value("location").map(str::to_owned))
}

/// How many visits have read the database.
fn misses(server: &Server) -> u64 {
    metric(server, "linerate_links_cache_lookups_total{result=\"miss\"}") as u64
}

/// A value from `/metrics`, from the line that starts with this name.
fn metric(server: &Server, name: &str) -> f64 {
    let mut client = Client::connect(server.admin).expect("it listens");
    // Without a key, it only answers for local names.
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let answer = client.receive().expect("an answer");
    let line = answer.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("there is no {name}"))
}
