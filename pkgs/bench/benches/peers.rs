//! Only the peers: what nginx, a constant actix-web handler and the floor cost on this machine, and how far apart they
//! are under different kinds of load.
//!
//! `cargo bench -p linerate-bench --features actix --bench peers [-- THREADS CONNECTIONS SECONDS]`
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;

use bench::peers::{self, Nginx};
use bench::report::Report;
use bench::rounds::{Case, alternate};
use bench::server::Placement;
use bench::wrk::{Load, Requests};
use bench::{Error, setup};

const PLACEMENT: Placement = Placement { workers: 2, cpu: None };
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    if let Some(code) = peers::serve_if_asked() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    setup::require("wrk", "wrk")?;
    setup::require("nginx", "nginx-light")?;
    let network = setup::isolate();
    let mut numbers = env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let mut next = |otherwise: usize| numbers.next().unwrap_or(otherwise);
    let load = Load { threads: next(2), connections: next(64), seconds: next(2) as u64 };

    let (nginx, actix, floor) =
        (Nginx::start(PLACEMENT)?, peers::actix(PLACEMENT)?, peers::floor(PLACEMENT)?);
    let all = [nginx.server(), &actix, &floor];
    // nginx answers with another status, so that it sends no page.
    let status = |server| if std::ptr::eq(server, nginx.server()) { Nginx::STATUS } else { 307 };
    let case = |server, name, requests| Case { server, name, requests, load, placement: PLACEMENT };
    let mut cases: Vec<Case<'_>> =
        all.map(|server| case(server, "single", Requests::same("/a", status(server)))).into();
    cases.extend(
        all.map(|server| case(server, "pipelined x16", Requests::pipelined("/a", 16, status(server)))),
    );
    let mut report = Report::new(&network);
    report.condition(format!("{load}, {ROUNDS} rounds; servers with {} workers", PLACEMENT.workers));
    report.add(&alternate(ROUNDS, &cases)?, &["nginx", "floor"]);
    report.print();
    Ok(())
}
