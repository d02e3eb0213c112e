//! Several services on one database: what happens to them, and to the writes that they have acknowledged, when a
//! connection, the database or a service fails.

mod coherence;
mod conditions;
mod crash;
mod outage;

use std::time::{Duration, Instant};

use api::seed;
use api::store::{Created, Draft, Replaced};
use api::user::{Record, UserId};
use api::users::{Options, Users};
use bench::postgres::{Durability, Postgres};
use testkit::eventually;

/// How far behind a cached read may be in these tests.
const STALENESS: Duration = Duration::from_millis(500);

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn server(durability: Durability) -> Postgres {
    Postgres::start(durability, &[]).expect("PostgreSQL starts")
}

/// A node that waits for the database as long as a busy machine may need.
async fn node(server: &Postgres) -> Users {
    open(server, Options { timeout: PATIENCE, acquire_timeout: PATIENCE, ..options(server) }).await
}

fn options(server: &Postgres) -> Options {
    let url = server.url("postgres").parse().expect("a URL");
    Options { staleness: STALENESS, ..Options::new(url) }
}

async fn open(server: &Postgres, options: Options) -> Users {
    Users::open(&options).await.unwrap_or_else(|error| panic!("{}: {error}", server.url("postgres")))
}

/// A user to write.
fn user(number: u64) -> Draft {
    Draft::of(&seed::document(number)).expect("it serialises")
}

async fn create(users: &Users, number: u64) -> Record {
    let created = users.create(vec![user(number)], None).await.expect("the database answers");
    let Created::Done(mut records) = created else { panic!("{created:?}") };
    records.remove(0)
}

/// Writes the user once more and returns its version.
async fn rewrite(users: &Users, id: UserId, number: u64) -> i64 {
    let replaced = users.replace(id, None, user(number)).await.expect("the database answers");
    let Replaced::Done(record) = replaced else { panic!("{replaced:?}") };
    record.version
}

async fn version(users: &Users, id: UserId) -> i64 {
    users.get(id).await.expect("the database answers").expect("there is such a user").version
}

/// Reads a user until the answer comes from the cache.
async fn warm(users: &Users, id: UserId) {
    eventually("a user is cached", async || {
        let _ = users.get(id).await;
        users.cached(id).is_some()
    })
    .await;
}
