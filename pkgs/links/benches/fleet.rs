//! What links costs PostgreSQL when several servers share it: importing and exporting a million links, edits by many
//! clients at once, visits that miss every cache, and clicks that are sent and added up.
//!
//! `cargo bench -p linerate-links --bench fleet [-- [--quick] [--strict]]`. Needs PostgreSQL, and installs it from
//! Debian's packages when root runs it. It syncs as PostgreSQL does by default, and shares the CPUs with the bench.
//! Prints figures and targets, and writes both to `target/bench/links-fleet.json`.
#![forbid(unsafe_code)]

use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::postgres::{Durability, Postgres};
use bench::report::Report;
use bench::{Error, entry};
use links::agent::Agent;
use links::code::CodePolicy;
use links::domains::{DomainId, InDomains};
use links::link::LinkPatch;
use links::store::{Click, ClickBatch, PostgresOptions, Remote, Store};
use links::target::TargetPolicy;
use links::transfer::{Format, ImportOptions, Writer, import};

/// How much is measured.
struct Scale {
    links: u64,
    /// Flushes of clicks.
    flushes: u64,
    /// How long to read and to edit.
    reading: Duration,
}

const FULL: Scale = Scale { links: 1_000_000, flushes: 30, reading: Duration::from_secs(5) };
const QUICK: Scale = Scale { links: 20_000, flushes: 3, reading: Duration::from_secs(1) };

/// Clicks per flush: what one of ten servers gets in a second according to docs/explanation/capacity.md.
const CLICKS: u32 = 11_600;

/// Readers that wait at once, each for its own code.
const READERS: u64 = 256;

/// Writers that edit links at once, each waiting for its own commit.
const WRITERS: u64 = 32;

/// The target for edits per second. With NOTIFY in the transaction, this machine reaches only 368.
const EDITS: f64 = 2_500.0;

/// How long an import and an export at full scale may take, in seconds.
const BULK_SECONDS: f64 = 30.0;

fn main() -> ExitCode {
    entry::run(run)
}

fn run(quick: bool) -> Result<Report, Error> {
    let scale = if quick { QUICK } else { FULL };
    let server = Postgres::start(Durability::Full, &["shared_buffers=512MB", "max_wal_size=4GB"])?;
    let mut report = Report::new("a Unix socket");
    report.condition(format!(
        "PostgreSQL that syncs, on the same CPUs; {} links, {} flushes of {CLICKS} clicks",
        scale.links, scale.flushes
    ));
    let Ok(store) = Store::connect(options(&server, false)) else { panic!("PostgreSQL takes no connection") };
    bulk(&store, &scale, &mut report);
    edits(&store, &scale, &mut report);
    misses(&store, &scale, &server, &mut report)?;
    clicks(&store, &scale, &server, &mut report)?;
    store.close();
    report.write(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench/links-fleet.json")))?;
    report.print();
    Ok(report)
}

fn options(server: &Postgres, serves: bool) -> PostgresOptions {
    PostgresOptions {
        url: server.url("postgres").parse().expect("a URL"),
        codes: CodePolicy::default(),
        targets: TargetPolicy::default(),
        queue: 1_024,
        connections: NonZero::new(WRITERS as u32).expect("not 0"),
        timeout: Duration::from_secs(60),
        pipelines: NonZero::<usize>::MIN,
        staleness: Duration::from_secs(1),
        serves,
        traced: false,
        watch: Arc::new(()),
    }
}

/// The code of a link.
fn code(number: u64) -> String {
    format!("code{number:07}")
}

/// Imports and exports links, as the command line does.
fn bulk(store: &Store, scale: &Scale, report: &mut Report) {
    let mut csv = String::from("code,target,title,tags\n");
    for number in 0..scale.links {
        let code = code(number);
        csv += &format!("{code},https://example.com/a/page/somewhere/{code}?from=bench,Page {number},a b\n");
    }
    let begin = Instant::now();
    let options = ImportOptions::default();
    let tally = import(Format::Csv, csv.as_bytes(), store, &options, &mut |_| {});
    let tally = tally.expect("PostgreSQL takes them");
    assert_eq!((tally.created, tally.failed), (scale.links, 0), "{:?}", tally.errors);
    let imported = begin.elapsed();
    let begin = Instant::now();
    let mut writer = Writer::new(Format::Csv, false, std::io::sink()).expect("a sink takes all");
    let mut exported = 0_u64;
    let reader = store.reader().expect("it is open");
    let walked = reader.export(&InDomains::All, false, &mut |record| {
        exported += 1;
        writer.write(&record).is_ok()
    });
    walked.expect("it answers");
    writer.finish().expect("a sink takes all");
    assert_eq!(exported, scale.links);
    let limit = BULK_SECONDS * scale.links as f64 / FULL.links as f64;
    report.target(format!("{} links imported", scale.links), imported.as_secs_f64(), "s", limit);
    report.target(format!("{} links exported", scale.links), begin.elapsed().as_secs_f64(), "s", limit);
}

/// Edits links, each with its own commit, of which other servers learn.
fn edits(store: &Store, scale: &Scale, report: &mut Report) {
    let begin = Instant::now();
    let until = begin + scale.reading;
    let edit = |writer: u64| {
        let mut count = 0_u64;
        while Instant::now() < until {
            let patch = LinkPatch { title: Some(Some(format!("Edit {count}"))), ..LinkPatch::default() };
            store.edit(code((count * WRITERS + writer) % scale.links), patch).wait().expect("it is there");
            count += 1;
        }
        count
    };
    let counted = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || edit(writer))).collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).sum::<u64>()
    });
    let edits = counted as f64 / begin.elapsed().as_secs_f64();
    report.figure(format!("edits, {WRITERS} writers"), edits, "/s");
    report.target("2,500 edits a second / those", EDITS / edits, "x", 1.0);
}

/// Visits codes that no cache has.
fn misses(store: &Store, scale: &Scale, server: &Postgres, report: &mut Report) -> Result<(), Error> {
    let remote = store.remote().expect("PostgreSQL is waited for");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let used = server.usage()?;
    let begin = Instant::now();
    let counted = runtime.block_on(async {
        let until = begin + scale.reading;
        let readers = (0..READERS).map(|first| read(&remote, first, scale.links, until));
        futures_util::future::join_all(readers).await.into_iter().sum::<u64>()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = server.usage()?.cpu().saturating_sub(used.cpu());
    report.figure(format!("misses, {READERS} readers, one connection"), counted as f64 / seconds, "/s");
    report.figure("CPU of PostgreSQL, a miss", cpu.as_secs_f64() * 1e6 / counted as f64, "µs");
    Ok(())
}

/// Reads one code after the other, spread over the whole table. Returns how many were read.
async fn read(remote: &Remote, first: u64, links: u64, until: Instant) -> u64 {
    let (mut state, mut count) = (first, 0);
    while Instant::now() < until {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let found = remote.route(DomainId::DEFAULT, &code((state >> 33) % links)).await;
        assert!(found.expect("it answers").is_some(), "every link is there");
        count += 1;
    }
    count
}

/// Sends flushes of clicks, as a server sends them each second. Then a server adds them up.
fn clicks(store: &Store, scale: &Scale, server: &Postgres, report: &mut Report) -> Result<(), Error> {
    let first: i64 = number(&server.execute("postgres", "SELECT min(id) FROM links")?);
    let batches: Vec<ClickBatch> = (0..scale.flushes).map(|flush| batch(flush, first, scale.links)).collect();
    let total: u64 = batches.iter().map(ClickBatch::total).sum();
    let position = "SELECT pg_current_wal_insert_lsn() - '0/0'";
    let (log, used, begin) =
        (number(&server.execute("postgres", position)?), server.usage()?, Instant::now());
    for batch in batches {
        store.count(Arc::new(batch)).wait().expect("they are taken");
    }
    let sent = begin.elapsed().as_secs_f64();
    let cpu = server.usage()?.cpu().saturating_sub(used.cpu());
    let written = number(&server.execute("postgres", position)?) - log;
    report.figure("clicks sent, one box", total as f64 / sent, "/s");
    report.figure("CPU of PostgreSQL, a click sent", cpu.as_secs_f64() * 1e6 / total as f64, "µs");
    report.figure("write-ahead log, a click sent", written as f64 / total as f64, "bytes");

    // A server adds the flushes up; a command does not.
    let (used, begin) = (server.usage()?, Instant::now());
    let Ok(adding) = Store::connect(options(server, true)) else { panic!("PostgreSQL takes no connection") };
    while server.execute("postgres", "SELECT count(*) FROM click_flushes")? != "0" {
        assert!(begin.elapsed() < Duration::from_secs(600), "they are added up in the end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let added = begin.elapsed().as_secs_f64();
    let cpu = server.usage()?.cpu().saturating_sub(used.cpu());
    adding.close();
    let stored: i64 = number(&server.execute("postgres", "SELECT sum(clicks) FROM totals")?);
    assert_eq!(stored.unsigned_abs(), total, "each click is counted once");
    report.figure("clicks added up by the one that is elected", total as f64 / added, "/s");
    report.figure("CPU of PostgreSQL, a click added up", cpu.as_secs_f64() * 1e6 / total as f64, "µs");
    Ok(())
}

/// The clicks that a server counts in a second. Most are on different links, and few links are clicked often (Zipf's
/// law, exponent 1).
fn batch(flush: u64, first: i64, links: u64) -> ClickBatch {
    let mut state = flush.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut counts = std::collections::BTreeMap::<i64, u32>::new();
    for _ in 0..CLICKS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The inverse of the law's distribution, up to its constant.
        let rank = (links as f64).powf((state >> 11) as f64 / (1_u64 << 53) as f64) as u64 - 1;
        *counts.entry(first + (rank % links) as i64).or_default() += 1;
    }
    let click = |(link, count)| Click { link, hour: 20_000 * 24, referrer: 0, agent: Agent::None, count };
    ClickBatch {
        referrers: vec![String::new()],
        clicks: counts.into_iter().map(click).collect(),
        countries: Vec::new(),
    }
}

/// A number that psql printed.
fn number(printed: &str) -> i64 {
    printed.parse().unwrap_or_else(|_| panic!("{printed:?} is no number"))
}
