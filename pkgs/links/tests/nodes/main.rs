//! Two servers on one PostgreSQL: what each knows of the other's writes, and what becomes of links, clicks and limits when
//! a server or the database is killed. Runs the real binary.

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

use std::time::Duration;

use bench::postgres::{Durability, Postgres};

use crate::http::Client;
use crate::server::{Place, Server};

/// How far behind a cached link may be in these tests.
const STALENESS: Duration = Duration::from_millis(500);

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A PostgreSQL, and what servers on it say.
fn start(durability: Durability) -> (Postgres, Place) {
    let postgres = Postgres::start(durability, &[]).expect("PostgreSQL starts");
    let place = Place::at(postgres.url("postgres"));
    (postgres, place)
}

/// A server of some workers.
fn node(place: &Place, flags: &[&str]) -> Server {
    let staleness = STALENESS.as_millis().to_string();
    place.serve(&[&["--staleness", &staleness, "--workers", "2"], flags].concat())
}

/// What a code answers: its status, and where it leads.
fn ask(client: &mut Client, code: &str) -> (u16, Option<String>) {
    let answer = client.get(code).expect("the server answers");
    (answer.status, answer.field("location").map(str::to_owned))
}
