//! What HTTP/3 costs a server: a hello, and a gigabyte in each direction, compared with quinn and h3 combined as in
//! their examples, and with Caddy.
//!
//! `cargo bench -p linerate-listener --bench h3 [-- --quick]`. Needs Caddy, and installs it from Debian when root runs
//! it. Prints one table and the figures per gigabyte, and writes both to `target/bench/h3.json`.
#![forbid(unsafe_code)]

mod peers;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bench::h3load::{Load, LoadRequest};
use bench::report::{Report, find};
use bench::rounds::{Sample, Series};
use bench::server::Placement;
use bench::{Error, entry, setup};

use peers::{CADDY, NAIVE, OURS, OURS_AXUM, Peer};

// The peers use it too, so that they have what the listener has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The server and the load each have their own CPU, since a QUIC client has more work than its server.
const SERVER: Placement = Placement { workers: 1, cpu: Some(0) };
const LOAD_CPU: usize = 1;

const HELLO: &str = "hello";
const DOWN: &str = "16 MiB down";
const UP: &str = "16 MiB up";
/// Bytes of a large body.
const LARGE: u64 = 16 << 20;

fn main() -> ExitCode {
    if let Some(code) = peers::serve_if_asked() {
        return code;
    }
    entry::run(run)
}

fn run(quick: bool) -> Result<Report, Error> {
    // A package comes from the network, which is gone once the bench has its own.
    let caddy = setup::require("caddy", "caddy")?;
    let network = setup::isolate();
    eprintln!("{network}");
    let (rounds, time) = if quick { (1, 1) } else { (3, 3) };
    let time = Duration::from_secs(time);
    let apart = service::workers::count(None) > LOAD_CPU && service::workers::pin(LOAD_CPU);

    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let results = scratch.with_file_name("bench");
    let scratch = tempfile::tempdir_in(scratch)?;
    let mut report = Report::new(&network);
    report.condition(format!("{rounds} rounds of all cases in turn; medians"));
    report.condition(format!("1 worker on CPU 0, the load {}", if apart { "on CPU 1" } else { "beside it" }));
    report.condition("hello: 16 connections of 10 requests at once; 16 MiB: 4 connections of one".into());
    report.condition("Caddy sends a file, the others what is in memory; its uploads nobody reads".into());

    let peers = [
        Peer::start(OURS, SERVER, scratch.path())?,
        Peer::start(OURS_AXUM, SERVER, scratch.path())?,
        Peer::start(NAIVE, SERVER, scratch.path())?,
        Peer::caddy(&caddy, SERVER, scratch.path(), LARGE)?,
    ];
    let hello =
        Load { connections: 16, streams: 10, request: LoadRequest::get("/", peers::ANSWER.len() as u64) };
    let down = Load { connections: 4, streams: 1, request: LoadRequest::get(peers::LARGE_PATH, LARGE) };
    let up = Load { connections: 4, streams: 1, request: LoadRequest::post("/read", LARGE) };
    let mut cases: Vec<(&Peer, &'static str, &Load)> = Vec::new();
    for (name, load) in [(HELLO, &hello), (DOWN, &down), (UP, &up)] {
        let takes = |peer: &&Peer| name != UP || peer.name() != CADDY;
        cases.extend(peers.iter().filter(takes).map(|peer| (peer, name, load)));
    }
    let series = alternate(rounds, time, &cases)?;
    report.add(&series, &[NAIVE, CADDY]);
    for (case, way) in [(DOWN, "sent"), (UP, "received")] {
        for series in series.iter().filter(|series| series.case == case) {
            let seconds = series.cpu_us() / 1e6 / LARGE as f64 * 1e9;
            report.figure(format!("{} of CPU by the GB {way}", series.server), seconds, "s");
        }
    }
    for case in [HELLO, DOWN, UP] {
        let get = |server| find(&series, server, case).expect("all cases were measured");
        report.target(format!("{case} / {NAIVE}"), get(OURS).cpu_ratio(get(NAIVE)), "x", 1.0);
    }
    report.print();
    let json = results.join("h3.json");
    report.write(&json)?;
    println!("written: {}", json.display());
    Ok(report)
}

/// Loads each case in turn, round after round, after a first round for warming up.
fn alternate(
    rounds: usize,
    time: Duration,
    cases: &[(&Peer, &'static str, &Load)],
) -> Result<Vec<Series>, Error> {
    let mut all: Vec<Series> = cases
        .iter()
        .map(|(peer, case, _)| Series { server: peer.name(), case, samples: Vec::new(), resident: 0 })
        .collect();
    for round in 0..=rounds {
        for ((peer, case, load), series) in cases.iter().zip(&mut all) {
            let time = if round == 0 { Duration::from_millis(500) } else { time };
            let before = peer.server().usage()?;
            let outcome = load.run(peer.address(), time).map_err(|what| Error::Load {
                server: peer.name().into(),
                case: (*case).into(),
                what,
            })?;
            let after = peer.server().usage()?;
            let each = |time: Duration| time.as_secs_f64() * 1e6 / outcome.requests as f64;
            let sample = Sample {
                qps: outcome.requests as f64 / outcome.elapsed.as_secs_f64(),
                p50_us: outcome.percentile(0.5),
                p99_us: outcome.percentile(0.99),
                cpu_us: each(after.cpu().saturating_sub(before.cpu())),
                user_us: each(after.user.saturating_sub(before.user)),
            };
            if round > 0 {
                eprintln!(
                    "round {round}/{rounds}  {case:<12} {:<22} {:>8.0}/s {:>10.2} µs",
                    peer.name(),
                    sample.qps,
                    sample.cpu_us
                );
                series.samples.push(sample);
                series.resident = after.resident;
            }
        }
    }
    Ok(all)
}
