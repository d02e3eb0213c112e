//! What each stage of the ladders does, beside what its article claims.
//!
//! `make bench-ladder`, or in parts `make bench-ladder ARGS="post"`, `get`, `links`; `--quick` for a quick look. Prints
//! a table for each part and writes it to `target/bench/ladder-PIECE.json`, the bars to
//! `target/bench/ladder-PIECE.svg`. Stages that don't help are shown as such; an unexpected answer is a failure.
#![forbid(unsafe_code)]

mod kernel;
mod programs;
mod servers;
mod steps;
mod table;

use std::path::Path;
use std::process::ExitCode;

use bench::report::Report;
use bench::rounds::{Case, Series, alternate_in, merge};
use bench::server::Placement;
use bench::wrk::{Content, Load, Requests};
use bench::{Error, entry, setup};
use ladder::api::database;
use ladder::links;
use service::workers;

use kernel::Kernel;
use servers::Servers;
use steps::Ladder;

/// The parts, each a ladder with one workload.
const PARTS: [&str; 3] = [POST, GET, LINKS];
const POST: &str = "post";
const GET: &str = "get";
const LINKS: &str = "links";

/// The load, PostgreSQL and the bench itself run on one CPU, the servers on another ([`servers::cpu`]). So nothing
/// shares the CPU of the measured server, and the scheduler doesn't move it.
const BESIDE: Placement = Placement { workers: 1, cpu: None };

/// How much is measured.
struct Scale {
    rounds: usize,
    load: Load,
}

// Nine rounds: with this many, the second lowest and second highest values bound the median. Fewer connections than in
// the articles, for fewer CPUs: enough that a server never waits for work.
const FULL: Scale = Scale { rounds: 9, load: Load { threads: 1, connections: 64, seconds: 2 } };
const QUICK: Scale = Scale { rounds: 1, load: Load { threads: 1, connections: 64, seconds: 1 } };

fn main() -> ExitCode {
    if !programs::is_built_by_profile() {
        return ExitCode::FAILURE;
    }
    entry::run_parts(&PARTS, |quick, parts| run(if quick { &QUICK } else { &FULL }, parts))
}

fn run(scale: &Scale, parts: &[&'static str]) -> Result<Report, Error> {
    if !setup::owns_network() {
        // Packages and crates come from the network, which is gone once the bench has its own.
        setup::require("wrk", "wrk")?;
        programs::build_last()?;
    }
    let network = setup::isolate();
    eprintln!("{network}");
    let machine = Report::new(&network);
    let apart = workers::pin(workers::allowed().len().saturating_sub(1)) && servers::cpu().is_some();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let results = scratch.with_file_name("bench");
    let scratch = tempfile::tempdir_in(scratch)?;
    for part in parts {
        let mut report = machine.clone();
        report.condition(format!(
            "{} rounds of all stages in turn, each stage a new process in each; {} on {}; medians",
            scale.rounds,
            scale.load,
            if apart { "another CPU than the server" } else { "the server's CPU" }
        ));
        let ladder = match *part {
            LINKS => shorten(scale, scratch.path(), &mut report)?,
            part => serve_users(scale, part, &mut report)?,
        };
        table::print(&ladder, &report);
        table::write(&ladder, &report, &results, part)?;
    }
    // A ladder's steps have verdicts instead of targets.
    Ok(machine)
}

/// The API's ladder with one of its workloads.
fn serve_users(scale: &Scale, part: &str, report: &mut Report) -> Result<Ladder, Error> {
    let (title, requests) = match part {
        POST => ("POST of 2 KB of JSON", post()),
        _ => ("GET by id from PostgreSQL", get()),
    };
    let kernel = Kernel::new(report);
    let postgres = servers::postgres()?;
    report.condition("connections to PostgreSQL: Unix socket, sqlx's default of 10 a stage".into());
    measure(title, scale, &kernel, &requests, report, || Servers::of_api(&postgres, &kernel))
}

/// The shortener's ladder.
fn shorten(scale: &Scale, scratch: &Path, report: &mut Report) -> Result<Ladder, Error> {
    report.condition(format!("one code out of {}, asked for over and over", links::database::LINKS));
    let kernel = Kernel::untouched();
    measure("GET of a short link", scale, &kernel, &redirect(), report, || Servers::of_links(scratch))
}

/// Starts all stages again for each round. The memory layout of a process changes its figures by more than the rounds
/// of one process differ, so each round gets another layout.
fn measure(
    title: &'static str,
    scale: &Scale,
    kernel: &Kernel,
    requests: &Requests,
    report: &mut Report,
    start: impl Fn() -> Result<Servers, Error>,
) -> Result<Ladder, Error> {
    let mut all: Vec<Series> = Vec::new();
    let mut servers = start()?;
    for round in 1..=scale.rounds {
        eprintln!("{title}: {round} of {}", scale.rounds);
        if round > 1 {
            drop(servers);
            servers = start()?;
        }
        let case = |server| Case {
            server,
            name: title,
            requests: requests.clone(),
            load: scale.load,
            placement: BESIDE,
        };
        let cases: Vec<Case<'_>> = servers.all().map(case).collect();
        merge(&mut all, alternate_in(1, &cases, |case| kernel.around(case.server.name()))?);
    }
    report.add(&all, &[]);
    Ok(Ladder::judge(title, servers.stages(), servers.twin(), &all))
}

fn post() -> Requests {
    let content = Content { media_type: "application/json", text: database::document() };
    Requests::posting("/users", content, 200)
}

/// Ids from all over the table. The requests are written beforehand, so that wrk itself has little work.
fn get() -> Requests {
    let script = format!(
        "local requests, at = {{}}, 0\n\
         function init()\n  \
           for i = 1, 1000 do requests[i] = wrk.format('GET', '/users/' .. math.random({rows})) end\n\
         end\n\
         function request()\n  \
           at = at % 1000 + 1\n  \
           return requests[at]\n\
         end\n",
        rows = database::ROWS
    );
    Requests::scripted("/users/1", script, 200)
}

/// The client accepts Brotli in every stage, so that the stage that compresses can do so.
fn redirect() -> Requests {
    Requests::scripted("/c1", "wrk.headers['Accept-Encoding'] = 'br'\n".into(), 307)
}
