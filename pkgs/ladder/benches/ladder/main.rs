//! What each stage of the ladders does, beside what its article claims.
//!
//! `make bench-ladder`, or in pieces `make bench-ladder ARGS="post"`, `get`, `links`; `--quick` for a look. Prints a
//! table for each piece and writes it to `target/bench/ladder-PIECE.json`, the bars to
//! `target/bench/ladder-PIECE.svg`. Stages that do not help are shown as such; an unexpected answer is a failure.
#![forbid(unsafe_code)]

mod kernel;
mod programs;
mod servers;
mod steps;
mod table;

use std::path::Path;
use std::process::ExitCode;

use bench::report::Report;
use bench::rounds::{Case, alternate_in};
use bench::server::Placement;
use bench::wrk::{Content, Load, Requests};
use bench::{Error, entry, setup};
use ladder::api::database;
use ladder::links;

use kernel::Kernel;
use servers::Servers;
use steps::Ladder;

/// The pieces, each a ladder under one workload.
const PARTS: [&str; 3] = [POST, GET, LINKS];
const POST: &str = "post";
const GET: &str = "get";
const LINKS: &str = "links";

/// Server and load share all CPUs, as the articles' did.
const PLACEMENT: Placement = Placement { workers: 2, cpu: None };

/// How much is measured.
struct Scale {
    rounds: usize,
    load: Load,
}

// Fewer connections than the articles', for fewer CPUs: enough to keep all workers busy. Below 3 s the 10 ms in
// which CPU time is counted would show.
const FULL: Scale = Scale { rounds: 3, load: Load { threads: 2, connections: 64, seconds: 3 } };
const QUICK: Scale = Scale { rounds: 1, load: Load { threads: 2, connections: 64, seconds: 1 } };

fn main() -> ExitCode {
    if !programs::is_built_by_profile() {
        return ExitCode::FAILURE;
    }
    entry::run_parts(&PARTS, |quick, parts| run(if quick { &QUICK } else { &FULL }, parts))
}

fn run(scale: &Scale, parts: &[&'static str]) -> Result<(), Error> {
    if !setup::owns_network() {
        // Packages and crates come over the network, which is gone once the bench has its own.
        setup::require("wrk", "wrk")?;
        programs::build_last()?;
    }
    let network = setup::isolate();
    eprintln!("{network}");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let results = scratch.with_file_name("bench");
    let scratch = tempfile::tempdir_in(scratch)?;
    for part in parts {
        let mut report = Report::new(&network);
        report.condition(format!(
            "{} rounds of all stages in turn, server and {} on all CPUs; medians",
            scale.rounds, scale.load
        ));
        let ladder = match *part {
            LINKS => shorten(scale, scratch.path(), &mut report)?,
            part => serve_users(scale, part, &mut report)?,
        };
        table::print(&ladder, &report);
        table::write(&ladder, &report, &results, part)?;
    }
    Ok(())
}

/// The API's ladder under one of its workloads.
fn serve_users(scale: &Scale, part: &str, report: &mut Report) -> Result<Ladder, Error> {
    let (title, requests) = match part {
        POST => ("POST of 2 KB of JSON", post()),
        _ => ("GET by id from PostgreSQL", get()),
    };
    let kernel = Kernel::new(report);
    let (_postgres, servers) = Servers::of_api(&kernel)?;
    report.condition("connections to PostgreSQL: Unix socket, sqlx's default of 10 a stage".into());
    measure(title, scale, &servers, &kernel, &requests, report)
}

/// The shortener's ladder.
fn shorten(scale: &Scale, scratch: &Path, report: &mut Report) -> Result<Ladder, Error> {
    let servers = Servers::of_links(scratch)?;
    report.condition(format!("one code out of {}, asked for over and over", links::database::LINKS));
    measure("GET of a short link", scale, &servers, &Kernel::untouched(), &redirect(), report)
}

fn measure(
    title: &'static str,
    scale: &Scale,
    servers: &Servers,
    kernel: &Kernel,
    requests: &Requests,
    report: &mut Report,
) -> Result<Ladder, Error> {
    let case = |server| Case {
        server,
        name: title,
        requests: requests.clone(),
        load: scale.load,
        placement: PLACEMENT,
    };
    let cases: Vec<Case<'_>> = servers.all().map(case).collect();
    let series = alternate_in(scale.rounds, &cases, |case| kernel.around(case.server.name()))?;
    report.add(&series, &[]);
    Ok(Ladder::judge(title, servers.stages(), servers.twin(), &series))
}

fn post() -> Requests {
    let content = Content { media_type: "application/json", text: database::document() };
    Requests::posting("/users", content, 200)
}

/// Ids all over the table. Their requests are written beforehand: wrk's own work should not be much of it.
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

/// The client accepts Brotli at every stage, so that the one that compresses could.
fn redirect() -> Requests {
    Requests::scripted("/c1", "wrk.headers['Accept-Encoding'] = 'br'\n".into(), 307)
}
