//! What it costs to tell other nodes about a write. Measures commits per second of 32 clients that update one row each
//! in three ways: without telling anybody, with NOTIFY in the transaction, and with a trigger that adds a row of
//! changes and NOTIFY after the commit.
//!
//! `cargo bench -p linerate-postgres --bench commits [-- [--quick] [--strict]]`. Needs PostgreSQL, and installs it from
//! The three ways take turns on one server that syncs as PostgreSQL does by default. pgbench is the load, and shares
//! the CPUs with the server.
#![forbid(unsafe_code)]

use std::fs;
use std::num::NonZero;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::postgres::{Durability, Postgres};
use bench::report::Report;
use bench::{Error, entry};
use postgres::types::Type;
use postgres::{CHANGES_SCHEMA, Connector, KeyQuery, Pipelines};

/// Rows in each table.
const ROWS: u32 = 200_000;

/// The ways to tell others, and the transaction of each; `{}` is the table.
const WAYS: [(&str, &str, &str); 3] = [
    ("no telling", "plain", "UPDATE plain SET n = n + 1 WHERE id = :id;"),
    (
        "NOTIFY in the transaction",
        "notified",
        "WITH w AS (UPDATE notified SET n = n + 1 WHERE id = :id RETURNING id) SELECT pg_notify('rows', id::text) FROM w;",
    ),
    ("a row of changes", "noted", "UPDATE noted SET n = n + 1 WHERE id = :id;"),
];

fn main() -> ExitCode {
    entry::run(run)
}

fn run(quick: bool) -> Result<Report, Error> {
    let server = Postgres::start(Durability::Full, &["shared_buffers=256MB", "max_wal_size=4GB"])?;
    server.execute("postgres", CHANGES_SCHEMA)?;
    for (_, table, _) in WAYS {
        let make = format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, n int NOT NULL) WITH (fillfactor = 70); \
             INSERT INTO {table} SELECT id, 0 FROM generate_series(1, {ROWS}) AS id"
        );
        server.execute("postgres", &make)?;
    }
    let note = "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                INSERT INTO changes (topic, keys) VALUES ('row', ARRAY[OLD.id::text]); RETURN NULL; END $$; \
                CREATE TRIGGER noted AFTER UPDATE OR DELETE ON noted FOR EACH ROW EXECUTE FUNCTION note()";
    server.execute("postgres", note)?;
    let directory = tempfile::tempdir()?;
    let (rounds, seconds) = if quick { (1, "2") } else { (3, "6") };
    let mut figures: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        for ((_, table, sql), figures) in WAYS.iter().zip(&mut figures) {
            let script = directory.path().join(table);
            fs::write(&script, format!("\\set id random(1, {ROWS})\n{sql}\n"))
                .map_err(Error::file(&script))?;
            let script = script.display().to_string();
            let arguments = ["-n", "-M", "prepared", "-c", "32", "-j", "2", "-T", seconds, "-f", &script];
            figures.push(server.pgbench("postgres", &arguments)?);
        }
    }
    let mut report = Report::new("a Unix socket");
    report.condition(format!(
        "32 clients, one update a commit, {rounds} rounds of {seconds} s in turn; medians"
    ));
    let mut medians = [0.0; 3];
    for ((name, ..), (figures, median)) in WAYS.iter().zip(figures.iter_mut().zip(&mut medians)) {
        figures.sort_by(f64::total_cmp);
        *median = figures[figures.len() / 2];
        report.figure(format!("commits, {name}"), *median, "/s");
    }
    report.target("2,500 commits a second / those with a row of changes", 2_500.0 / medians[2], "x", 1.0);
    report.target("NOTIFY in the transaction / a row of changes", medians[1] / medians[2], "x", 1.0);
    report.figure(
        "reads by key, one pipeline of 64 readers",
        reads(&server, if quick { 1 } else { 5 }),
        "/s",
    );
    report.print();
    Ok(report)
}

/// Reads per second through one pipeline, none of them cached.
fn reads(server: &Postgres, seconds: u64) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let conninfo = server.url("postgres").parse().expect("a URL");
        let connector = Connector::new(&conninfo, "bench");
        let query = KeyQuery {
            one: "SELECT id, n FROM plain WHERE id = $1",
            several: "SELECT id, n FROM plain WHERE id = ANY($1)",
            key: Type::INT4,
            keys: Type::INT4_ARRAY,
            read: |row| Ok((row.try_get::<_, i32>(0)?, row.try_get::<_, i32>(1)?)),
        };
        let timeout = Duration::from_secs(10);
        let pipelines = Pipelines::new(&connector, "bench", NonZero::<usize>::MIN, timeout, query);
        let (begin, mut count) = (Instant::now(), 0_u64);
        let until = begin + Duration::from_secs(seconds);
        let reader = |number: u32| {
            let pipelines = &pipelines;
            async move {
                let (mut id, mut count) = (number, 0_u64);
                while Instant::now() < until {
                    id = id.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let found = pipelines.get((id % ROWS + 1) as i32).await.expect("it answers");
                    assert!(found.is_some(), "every row is there");
                    count += 1;
                }
                count
            }
        };
        for counted in futures_util::future::join_all((0..64).map(reader)).await {
            count += counted;
        }
        count as f64 / begin.elapsed().as_secs_f64()
    })
}
