//! What a redirect costs. Without TLS, it is compared with nginx, a constant actix-web handler, and the lower limit
//! that the kernel sets (the floor). With TLS, it is compared with nginx.
//!
//! `cargo bench -p linerate-links --bench redirect [-- [--quick] [--strict] [PART...]]`. Needs wrk, h2load and nginx,
//! and installs them from Debian packages when root runs it. Prints one table and the targets, and writes both to
//! `target/bench/links.json`, or `links-PART.json`, and the bars of redirects without TLS to `target/bench/links.svg`.
//! An unexpected answer is a failure, and with `--strict` so is a missed target. `LINERATE_BENCH_OTHER` names a
//! directory with another build of linerate-links, such as the previous commit's, which is then measured too.
#![forbid(unsafe_code)]

mod codes;
mod collector;
mod links;
mod tls;

use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::peers::{self, Newest, Nginx};
use bench::report::{NO_WORSE, Report, find, mebibytes};
use bench::rounds::{Case, alternate, median};
use bench::server::{Placement, Server};
use bench::wrk::{Load, Requests};
use bench::{Error, chart, entry, setup};

// For the actix-web peer, which is in this executable and should have the same allocator as the shortener.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NGINX: &str = "nginx";
const FLOOR: &str = "floor";

/// The parts that can be run alone: redirects without TLS, with memory and starts, and everything with TLS.
const PARTS: [&str; 2] = [CLEAR, TLS];
const CLEAR: &str = "clear";
const TLS: &str = "tls";

/// Links that fit in any cache.
const FEW: u64 = 10_000;

/// How servers and load share the machine, and the names of the cases.
struct Setting {
    placement: Placement,
    /// wrk's threads.
    threads: usize,
    hot: &'static str,
    warm: &'static str,
    unknown: &'static str,
    cold: &'static str,
    pipelined: &'static str,
}

/// All CPUs, shared by two workers and two threads of load, as on the machine on which the targets were set.
const SPREAD: Setting = Setting {
    placement: Placement { workers: 2, cpu: None },
    threads: 2,
    hot: "hot",
    warm: "10,000 codes",
    unknown: "unknown",
    cold: "cold",
    pipelined: "pipelined x16",
};

/// Server and load take turns on one CPU. No scheduler decides which worker sleeps, so rounds differ least. The
/// differences between servers or cases are then clearest, even on a busy machine.
const ONE_CORE: Setting = Setting {
    placement: Placement { workers: 1, cpu: Some(0) },
    threads: 1,
    hot: "hot, one core",
    warm: "10,000 codes, one core",
    unknown: "unknown, one core",
    cold: "cold, one core",
    pipelined: "pipelined x16, one core",
};

/// How much is measured.
struct Scale {
    connections: usize,
    seconds: u64,
    rounds: usize,
    /// Links in the large database.
    many: u64,
    /// Links cached beyond [`FEW`], to measure the memory of one cached link.
    more: u64,
    /// The number of starts. Their median counts.
    starts: usize,
    /// Rounds and time of the cases with TLS. There are many such cases, and they differ less the shorter the time
    /// between them.
    secure: (usize, Duration),
    /// Idle TLS connections.
    idle: usize,
}

// 64 connections keep all workers of every server busy. More connections only lengthen the queue. With fewer, workers
// sleep, and the cost of waking them is measured too. With less than 3 s per round, the results would show the 10 ms in
// which CPU time is counted, and the start of the load.
const FULL: Scale = Scale {
    connections: 64,
    seconds: 3,
    rounds: 3,
    many: 1_000_000,
    more: 200_000,
    starts: 5,
    secure: (5, Duration::from_secs(2)),
    idle: 10_000,
};
const QUICK: Scale = Scale {
    connections: 64,
    seconds: 1,
    rounds: 1,
    many: 100_000,
    more: 50_000,
    starts: 3,
    secure: (1, Duration::from_secs(1)),
    idle: 1_000,
};

fn main() -> ExitCode {
    if let Some(code) = peers::serve_if_asked() {
        return code;
    }
    entry::run_parts(&PARTS, |quick, parts| run(if quick { &QUICK } else { &FULL }, parts))
}

fn run(scale: &Scale, parts: &[&str]) -> Result<Report, Error> {
    // Packages come from the network, which the bench cannot reach once it has its own.
    setup::require("wrk", "wrk")?;
    setup::require("nginx", "nginx-light")?;
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let nginx = if parts.contains(&TLS) {
        setup::require("h2load", "nghttp2-client")?;
        Some(Newest::find(place)?)
    } else {
        None
    };
    let network = setup::isolate();
    eprintln!("{network}");

    let results = place.with_file_name("bench");
    let mut report = Report::new(&network);
    // Each part makes its own databases.
    if parts.contains(&CLEAR) {
        clear(scale, tempfile::tempdir_in(place)?.path(), &mut report)?;
    }
    if let Some(nginx) = nginx {
        tls::measure(scale, &nginx, tempfile::tempdir_in(place)?.path(), &mut report)?;
    }
    report.print();
    let json = match parts {
        [part] => results.join(format!("links-{part}.json")),
        _ => results.join("links.json"),
    };
    report.write(&json)?;
    print!("written: {}", json.display());
    if parts.contains(&CLEAR) {
        let svg = results.join("links.svg");
        chart::write(&svg, "CPU time per hot redirect", SPREAD.hot, &report.rows)?;
        print!(" {}", svg.display());
    }
    println!();
    Ok(report)
}

/// Redirects without TLS.
fn clear(scale: &Scale, scratch: &Path, report: &mut Report) -> Result<(), Error> {
    report.condition(format!("{} rounds of all cases in turn; medians", scale.rounds));
    for setting in [&SPREAD, &ONE_CORE] {
        let Placement { workers, cpu } = setting.placement;
        let on = cpu.map_or("all CPUs".to_owned(), |cpu| format!("CPU {cpu}"));
        report.condition(format!(
            "{:?}: {workers} workers and {} on {on}",
            setting.hot,
            load(scale, setting)
        ));
    }
    let (few, _) = links::import(scratch, FEW)?;
    let (many, took) = links::import(scratch, scale.many)?;
    let name = format!("import of {} links", scale.many);
    report.target(name, took.as_secs_f64(), "s", 15.0 * scale.many as f64 / 1e6);

    redirects(scale, &many, report)?;
    memory(scale, &few, &many, report)?;
    starts(scale, &many, report)
}

fn paths(numbers: Range<u64>) -> Vec<String> {
    numbers.map(codes::path).collect()
}

fn load(scale: &Scale, setting: &Setting) -> Load {
    Load { threads: setting.threads, connections: scale.connections, seconds: scale.seconds }
}

/// All servers in one setting.
struct Servers {
    ours: Server,
    uncached: Server,
    nginx: Nginx,
    actix: Server,
    floor: Server,
    /// Another build of ours, with and without a cache.
    other: Option<[Server; 2]>,
}

impl Servers {
    /// Starts the servers, and fills each cache with what should be found there. Each of ours has its own database: the
    /// clicks of one would make the others drop what they have cached.
    fn start(scale: &Scale, database: &Path, placement: Placement) -> Result<Self, Error> {
        let copy = |name: &str| links::copy(database, &format!("{name}-{}", placement.workers));
        let ours = links::serve(&copy("cached")?, placement, &[])?;
        ours.visit(&paths(0..FEW), 307)?;
        ours.visit(&paths(scale.many..scale.many + 10 * FEW), 404)?;
        let other = |name: &str, flags: &[&str]| {
            let copy = links::copy_for_other(database, &format!("{name}-{}", placement.workers))?;
            links::serve_other(&copy, placement, flags)
        };
        let other = other("other", &[])?.zip(other("other-uncached", &["--cache-bytes", "0"])?);
        if let Some((other, _)) = &other {
            other.visit(&paths(0..FEW), 307)?;
            other.visit(&paths(scale.many..scale.many + 10 * FEW), 404)?;
        }
        Ok(Self {
            other: other.map(<[Server; 2]>::from),
            ours,
            uncached: links::serve(&copy("uncached")?, placement, &["--cache-bytes", "0"])?,
            nginx: Nginx::start(placement)?,
            actix: peers::actix(placement)?,
            floor: peers::floor(placement)?,
        })
    }

    fn cases(&self, scale: &Scale, setting: &Setting) -> Vec<Case<'_>> {
        let case = |server, name, requests: &Requests| Case {
            server,
            name,
            requests: requests.clone(),
            load: load(scale, setting),
            placement: setting.placement,
        };
        let mut all = vec![&self.ours, self.nginx.server(), &self.actix, &self.floor];
        let (cached, uncached) = match &self.other {
            Some([cached, uncached]) => (Some(cached), Some(uncached)),
            None => (None, None),
        };
        all.extend(cached);
        // nginx answers with another status, so that it sends no page.
        let status = |server| if std::ptr::eq(server, self.nginx.server()) { Nginx::STATUS } else { 307 };
        let hot = |server| case(server, setting.hot, &codes::requests(0, 1, status(server)));
        let batch = |server| {
            case(server, setting.pipelined, &Requests::pipelined(&codes::path(0), 16, status(server)))
        };
        let mut cases: Vec<Case<'_>> = all.iter().copied().map(hot).collect();
        for ours in std::iter::once(&self.ours).chain(cached) {
            cases.push(case(ours, setting.warm, &codes::requests(0, FEW, 307)));
            cases.push(case(ours, setting.unknown, &codes::requests(scale.many, 10 * FEW, 404)));
        }
        for ours in std::iter::once(&self.uncached).chain(uncached) {
            cases.push(case(ours, setting.cold, &codes::requests(0, scale.many, 307)));
        }
        cases.extend(all.into_iter().map(batch));
        cases
    }
}

/// A server whose hot redirects do more than plain ones.
struct Extra {
    name: &'static str,
    flags: &'static [&'static str],
    /// How many domains there are.
    domains: usize,
    /// Whether spans go to a collector.
    traces: bool,
}

/// Lines and spans are discarded after they are written. What counts is their cost to the server, all its threads
/// together.
const EXTRAS: [Extra; 5] = [
    Extra {
        name: "hot, one request in 100 logged, one core",
        flags: &["--access-log", "/dev/null", "--access-log-sample", "100"],
        domains: 0,
        traces: false,
    },
    Extra {
        name: "hot, every request logged, one core",
        flags: &["--access-log", "/dev/null"],
        domains: 0,
        traces: false,
    },
    Extra {
        name: "hot, one request in 100 traced, one core",
        flags: &["--otlp-sample", "100"],
        domains: 0,
        traces: true,
    },
    Extra { name: "hot, every request traced, one core", flags: &[], domains: 0, traces: true },
    Extra { name: "hot, 100 domains, one core", flags: &[], domains: 100, traces: false },
];

/// The servers of [`EXTRAS`].
fn extras(database: &Path) -> Result<Vec<Server>, Error> {
    let collector =
        collector::listen().map_err(|source| Error::Run { program: "a collector".into(), source })?;
    let collector = format!("http://{collector}");
    let start = |(number, extra): (usize, Extra)| {
        let copy = links::copy(database, &format!("extra-{number}"))?;
        links::add_domains(&copy, extra.domains)?;
        let traces: &[&str] = if extra.traces { &["--otlp", &collector] } else { &[] };
        let server = links::serve(&copy, ONE_CORE.placement, &[extra.flags, traces].concat())?;
        server.visit(&paths(0..1), 307)?;
        Ok(server)
    };
    EXTRAS.into_iter().enumerate().map(start).collect()
}

/// CPU time per redirect, for hot links and for others.
fn redirects(scale: &Scale, database: &Path, report: &mut Report) -> Result<(), Error> {
    let spread = Servers::start(scale, database, SPREAD.placement)?;
    let one_core = Servers::start(scale, database, ONE_CORE.placement)?;
    let mut cases = spread.cases(scale, &SPREAD);
    cases.extend(one_core.cases(scale, &ONE_CORE));
    let extras = extras(database)?;
    for (server, Extra { name, .. }) in extras.iter().zip(EXTRAS) {
        let (load, placement) = (load(scale, &ONE_CORE), ONE_CORE.placement);
        cases.push(Case { server, name, requests: codes::requests(0, 1, 307), load, placement });
    }
    let series = alternate(scale.rounds, &cases)?;
    report.add(&series, &[NGINX, FLOOR, links::OTHER]);
    // On one core, rounds differ least.
    report.no_worse(&series, (links::NAME, links::OTHER), |case| case.ends_with(", one core"));
    let plain = find(&series, links::NAME, ONE_CORE.hot).expect("it was measured");
    for Extra { name, .. } in EXTRAS {
        let extra = find(&series, links::NAME, name).expect("it was measured");
        report.figure(format!("{name} / without"), extra.cpu_ratio(plain), "x");
    }
    for setting in [SPREAD, ONE_CORE] {
        let get = |server, case| find(&series, server, case).expect("all cases were measured");
        let ours = |case| get(links::NAME, case);
        let (hot, nginx, floor) = (ours(setting.hot), get(NGINX, setting.hot), get(FLOOR, setting.hot));
        let mut target = |name: &str, against: &str, value, unit, limit| {
            report.target(format!("{name}{against}"), value, unit, limit);
        };
        target(setting.hot, "", hot.cpu_us(), "µs", 3.6);
        target(setting.hot, " / nginx", hot.cpu_ratio(nginx), "x", 0.6);
        target(setting.warm, " / hot", ours(setting.warm).cpu_ratio(hot), "x", 1.15);
        target(setting.unknown, " / hot", ours(setting.unknown).cpu_ratio(hot), "x", 1.2);
        target(setting.cold, "", ours(setting.cold).cpu_us(), "µs", 12.0);
        // No server can be faster than this. If it exceeds a target, the machine's kernel makes the target impossible.
        report.figure(format!("floor, {}", setting.hot), floor.cpu_us(), "µs");
        report.figure(format!("floor / nginx, {}", setting.hot), floor.cpu_ratio(nginx), "x");
        report.figure(format!("linerate-links / floor, {}", setting.hot), hot.cpu_ratio(floor), "x");
    }
    Ok(())
}

/// Resident memory with few links cached, and the memory of each further link.
fn memory(scale: &Scale, few: &Path, many: &Path, report: &mut Report) -> Result<(), Error> {
    let first = paths(0..FEW);
    let server = links::serve(few, SPREAD.placement, &[])?;
    report.figure("RSS, just started", mebibytes(server.usage()?.resident), "MiB");
    server.visit(&first, 307)?;
    load(scale, &SPREAD).run(&server, SPREAD.placement, SPREAD.warm, &codes::requests(0, FEW, 307))?;
    let usage = server.usage()?;
    report.target("RSS with 10,000 links cached", mebibytes(usage.resident), "MiB", 24.0);
    report.figure("the same without mapped pages", mebibytes(usage.anonymous), "MiB");
    drop(server);
    if let Some(other) = links::serve_other(&links::copy_for_other(few, "other-few")?, SPREAD.placement, &[])?
    {
        other.visit(&first, 307)?;
        load(scale, &SPREAD).run(&other, SPREAD.placement, SPREAD.warm, &codes::requests(0, FEW, 307))?;
        let before = other.usage()?;
        let ratio = |ours: u64, before: u64| ours as f64 / before as f64;
        let name = format!("RSS without mapped pages / {}", links::OTHER);
        report.target(name, ratio(usage.anonymous, before.anonymous), "x", NO_WORSE);
        report.figure(format!("RSS / {}", links::OTHER), ratio(usage.resident, before.resident), "x");
    }

    // There is room for all of them. The parts of the database that are read are mapped, so they count as resident
    // memory with a file behind it. A cached link is memory without a file behind it.
    let server = links::serve(many, SPREAD.placement, &["--cache-bytes", "268435456"])?;
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

/// The time from exec to the first redirect, on a database that is in the page cache.
fn starts(scale: &Scale, many: &Path, report: &mut Report) -> Result<(), Error> {
    let mut took = Vec::with_capacity(scale.starts);
    for number in 0..scale.starts as u64 {
        let begin = Instant::now();
        let server = links::serve(many, SPREAD.placement, &[])?;
        server.expect(&codes::path(number), 307)?;
        took.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    let name = format!("exec to first redirect, {} links", scale.many);
    report.target(name, median(took.into_iter()), "ms", 20.0);
    Ok(())
}
