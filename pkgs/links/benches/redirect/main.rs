//! What a redirect costs, beside nginx, a constant actix-web handler and the floor the kernel sets.
//!
//! `cargo bench -p linerate-links --bench redirect [-- --quick]`. Needs wrk and nginx, and installs them from
//! Debian packages where root runs it. Prints one table and the targets, and writes both to
//! `target/bench/links.json`, the bars to `target/bench/links.svg`. A missed target is no failure; an
//! unexpected answer is.
#![forbid(unsafe_code)]

mod codes;
mod links;

use std::env;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use bench::peers::{self, Nginx};
use bench::report::{Report, find, mebibytes};
use bench::rounds::{Case, alternate, median};
use bench::server::Placement;
use bench::wrk::{Load, Requests};
use bench::{Error, chart, setup};

// For the actix-web peer, which lives in this executable and shall have what the shortener has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NGINX: &str = "nginx";
const FLOOR: &str = "floor";

const HOT: &str = "hot";
const ONE_CORE: &str = "hot, one core";
const WARM: &str = "10,000 codes";
const UNKNOWN: &str = "unknown";
const COLD: &str = "cold";
const PIPELINED: &str = "pipelined x16";

/// Where the targets are measured: all CPUs, shared by servers and load.
const SPREAD: Placement = Placement { workers: 2, cpu: None };

/// Server and load take turns on one CPU. No scheduler decides which worker sleeps, so the rounds differ least
/// and what one server costs more than another shows best, even on a busy machine.
const ALONE: Placement = Placement { workers: 1, cpu: Some(0) };

/// Links that fit in any cache.
const FEW: u64 = 10_000;

/// How much is measured.
struct Scale {
    load: Load,
    rounds: usize,
    /// Links in the large database.
    many: u64,
    /// Links cached beyond [`FEW`] to see what one takes.
    more: u64,
    /// Starts of which the median counts.
    starts: usize,
}

// Two threads of wrk and 64 connections keep both workers of every server busy; more connections only lengthen
// the queue, fewer let workers sleep, and then waking them is measured. Below 4 s a round, the 10 ms in which
// CPU time is counted and the load's own start would show.
const FULL: Scale = Scale {
    load: Load { threads: 2, connections: 64, seconds: 4 },
    rounds: 3,
    many: 1_000_000,
    more: 200_000,
    starts: 5,
};
const QUICK: Scale = Scale {
    load: Load { threads: 2, connections: 64, seconds: 1 },
    rounds: 1,
    many: 100_000,
    more: 50_000,
    starts: 3,
};

fn main() -> ExitCode {
    if let Some(code) = peers::serve_if_asked() {
        return code;
    }
    let mut scale = FULL;
    for argument in env::args().skip(1) {
        match argument.as_str() {
            // What `cargo bench` always passes.
            "--bench" => {}
            "--quick" => scale = QUICK,
            _ => {
                eprintln!("error: {argument:?} is no argument of this bench; --quick is");
                return ExitCode::FAILURE;
            }
        }
    }
    match run(&scale) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                eprintln!("  caused by: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run(scale: &Scale) -> Result<(), Error> {
    // Packages come over the network, which is gone once the bench has its own.
    setup::require("wrk", "wrk")?;
    setup::require("nginx", "nginx-light")?;
    let network = setup::isolate();
    eprintln!("{network}");

    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let results = scratch.with_file_name("bench");
    let scratch = tempfile::tempdir_in(scratch)?;
    let mut report = Report::new(&network);
    report.condition(format!("load: {}, {} rounds in turn, medians; 2 workers", scale.load, scale.rounds));
    report.condition(format!("{ONE_CORE}: {}; 1 worker, on the same CPU", alone(scale.load)));
    let (few, _) = links::import(scratch.path(), FEW)?;
    let (many, took) = links::import(scratch.path(), scale.many)?;
    let name = format!("import of {} links", scale.many);
    report.target(name, took.as_secs_f64(), "s", 15.0 * scale.many as f64 / 1e6);

    redirects(scale, &many, &mut report)?;
    memory(scale, &few, &many, &mut report)?;
    starts(scale, &many, &mut report)?;

    report.print();
    let (json, svg) = (results.join("links.json"), results.join("links.svg"));
    report.write(&json)?;
    chart::write(&svg, "CPU time per hot redirect", HOT, &report.rows)?;
    println!("written: {} {}", json.display(), svg.display());
    Ok(())
}

fn paths(numbers: Range<u64>) -> Vec<String> {
    numbers.map(codes::path).collect()
}

/// The load for servers on one CPU: a second thread would only wait for it.
fn alone(load: Load) -> Load {
    Load { threads: 1, ..load }
}

/// CPU time per redirect, hot and less so.
fn redirects(scale: &Scale, database: &Path, report: &mut Report) -> Result<(), Error> {
    let ours = links::serve(database, SPREAD, &[])?;
    let uncached = links::serve(database, SPREAD, &["--cache-bytes", "0"])?;
    let (nginx, actix, floor) = (Nginx::start(SPREAD)?, peers::actix(SPREAD)?, peers::floor(SPREAD)?);
    let spread = [&ours, nginx.server(), &actix, &floor];
    let (ours1, nginx1) = (links::serve(database, ALONE, &[])?, Nginx::start(ALONE)?);
    let (actix1, floor1) = (peers::actix(ALONE)?, peers::floor(ALONE)?);
    let one_core = [&ours1, nginx1.server(), &actix1, &floor1];

    let hot = codes::requests(0, 1, 307);
    let batch = Requests::pipelined(&codes::path(0), 16, 307);
    let case = |server, name, requests: &Requests| Case {
        server,
        name,
        requests: requests.clone(),
        load: scale.load,
        placement: SPREAD,
    };
    let mut cases: Vec<Case<'_>> = spread.map(|server| case(server, HOT, &hot)).into();
    cases.extend(one_core.map(|server| Case {
        load: alone(scale.load),
        placement: ALONE,
        ..case(server, ONE_CORE, &hot)
    }));
    cases.extend(spread.map(|server| case(server, PIPELINED, &batch)));
    cases.extend([
        case(&ours, WARM, &codes::requests(0, FEW, 307)),
        case(&ours, UNKNOWN, &codes::requests(scale.many, 10 * FEW, 404)),
        case(&uncached, COLD, &codes::requests(0, scale.many, 307)),
    ]);

    // Whoever is to be found in the cache has been asked for before.
    ours.visit(&paths(0..FEW), 307)?;
    ours.visit(&paths(scale.many..scale.many + 10 * FEW), 404)?;
    let series = alternate(scale.rounds, &cases)?;
    report.add(&series, &[NGINX, FLOOR]);
    let get = |server, case| find(&series, server, case).expect("all cases above were measured");
    let hot = get(links::NAME, HOT);
    let cpu = |case| get(links::NAME, case).median(|sample| sample.cpu_us);
    report.target("hot redirect", cpu(HOT), "µs", 3.6);
    report.target("hot redirect / nginx", hot.cpu_ratio(get(NGINX, HOT)), "x", 0.6);
    let (hot1, nginx1, floor1) = (get(links::NAME, ONE_CORE), get(NGINX, ONE_CORE), get(FLOOR, ONE_CORE));
    report.target("hot redirect / nginx, one core", hot1.cpu_ratio(nginx1), "x", 0.6);
    report.target("10,000 codes / hot", get(links::NAME, WARM).cpu_ratio(hot), "x", 1.15);
    report.target("unknown codes / hot", get(links::NAME, UNKNOWN).cpu_ratio(hot), "x", 1.2);
    report.target("cold redirect", cpu(COLD), "µs", 12.0);
    // What no server can be below: where this is above the targets, the machine's kernel rules them out.
    report.figure("floor", get(FLOOR, HOT).median(|sample| sample.cpu_us), "µs");
    report.figure("floor / nginx", get(FLOOR, HOT).cpu_ratio(get(NGINX, HOT)), "x");
    report.figure("floor / nginx, one core", floor1.cpu_ratio(nginx1), "x");
    report.figure("hot redirect / floor, one core", hot1.cpu_ratio(floor1), "x");
    Ok(())
}

/// Resident memory with few links cached, and what each link more takes.
fn memory(scale: &Scale, few: &Path, many: &Path, report: &mut Report) -> Result<(), Error> {
    let first = paths(0..FEW);
    let server = links::serve(few, SPREAD, &[])?;
    report.figure("RSS, just started", mebibytes(server.usage()?.resident), "MiB");
    server.visit(&first, 307)?;
    scale.load.run(&server, SPREAD, WARM, &codes::requests(0, FEW, 307))?;
    let usage = server.usage()?;
    report.target("RSS with 10,000 links cached", mebibytes(usage.resident), "MiB", 24.0);
    report.figure("the same without mapped pages", mebibytes(usage.anonymous), "MiB");
    drop(server);

    // Room for all of them. What is read of the database is mapped, and counts as resident only where a file
    // backs it; a cached link is the memory no file backs.
    let server = links::serve(many, SPREAD, &["--cache-bytes", "268435456"])?;
    server.visit(&first, 307)?;
    let before = server.usage()?;
    let further = paths(FEW..FEW + scale.more);
    server.visit(&further, 307)?;
    let after = server.usage()?;
    let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / further.len() as f64;
    report.target("a cached link beyond", each(after.anonymous, before.anonymous), "bytes", 400.0);
    report.figure("the same with mapped pages", each(after.resident, before.resident), "bytes");
    Ok(())
}

/// From exec to the first redirect, on a database that is in the page cache.
fn starts(scale: &Scale, many: &Path, report: &mut Report) -> Result<(), Error> {
    let mut took = Vec::with_capacity(scale.starts);
    for number in 0..scale.starts as u64 {
        let begin = Instant::now();
        let server = links::serve(many, SPREAD, &[])?;
        server.expect(&codes::path(number), 307)?;
        took.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    let name = format!("exec to first redirect, {} links", scale.many);
    report.target(name, median(took.into_iter()), "ms", 20.0);
    Ok(())
}
