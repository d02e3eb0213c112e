//! What it costs to serve a file, compared with nginx and static-web-server.
//!
//! `cargo bench -p linerate-files --bench transfer [-- [--quick] [--strict] [PART...]]`, where `cold` means all parts
//! that start with it, each of which takes less than two minutes once its files exist. Servers have CPU 0, the load CPU
//! 1; cases alternate. Needs wrk, h2load, nginx and Caddy, installed from Debian packages when root runs it, and
//! static-web-server, which cargo installs into the target directory. Prints a table for each part and the targets, and
//! writes them to `target/bench/files.json`, or `files-PART.json`. A wrong answer is a failure, and with `--strict` so
//! is a missed target. `LINERATE_BENCH_OTHER` names a directory with another build of linerate-files, which is then
//! measured too.
#![forbid(unsafe_code)]

mod cold;
mod drain;
mod limited;
mod network;
mod origin;
mod peers;
mod rules;
mod secure;
mod tables;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use bench::peers::Newest;
use bench::report::{Report, mebibytes};
use bench::rounds::median;
use bench::server::Server;
use bench::{Error, entry, setup};

use drain::{Order, Workload};
use network::Network;
use tables::{Load, Series};

/// How much is measured.
#[derive(Clone, Copy)]
struct Scale {
    seconds: f64,
    rounds: usize,
    starts: usize,
}

const FULL: Scale = Scale { seconds: 2.0, rounds: 3, starts: 9 };
const QUICK: Scale = Scale { seconds: 0.5, rounds: 1, starts: 3 };

/// Sizes of files: name and bytes. There are [`FILES`] of each, which are requested in turn.
const SIZES: [(&str, usize); 3] = [("2.4 MB", 2_400_000), ("16 KB", 16_384), (SMALL, 1_024)];
/// The size that fits in one packet with its head.
const SMALL: &str = "1 KB";
const FILES: usize = 8;
const CONNECTIONS: usize = 64;
/// The number of connections for measuring memory.
const CROWD: usize = 512;

/// The parts that can be run alone: a file size on loopback, pairs of virtual Ethernet ports, TLS, data larger than
/// memory, rules, files from an origin, and memory with the time from start to first answer.
const PARTS: [&str; 12] = [
    "2.4MB",
    "16KB",
    "1KB",
    "veth-1500",
    "veth-9000",
    "tls",
    "cold-16KB",
    "cold-2.4MB",
    "cold-zipf",
    "rules",
    "origin",
    "process",
];

const OURS: &str = "linerate-files";
const NGINX: &str = "nginx";
/// Another build of ours.
const OTHER: &str = "other build";

fn main() -> ExitCode {
    if let Some(code) = drain::load_if_asked().or_else(secure::load_if_asked) {
        return code;
    }
    entry::run_parts(&PARTS, |quick, parts| run(if quick { QUICK } else { FULL }, parts))
}

fn run(scale: Scale, parts: &[&str]) -> Result<Report, Error> {
    // Packages come from the network, which is gone once the bench has its own.
    setup::require("wrk", "wrk")?;
    setup::require("h2load", "nghttp2-client")?;
    setup::require("nginx", "nginx-light")?;
    setup::require("caddy", "caddy")?;
    if parts.iter().any(|part| cold::is_row(part)) {
        setup::require("fio", "fio")?;
    }
    let is_compared =
        |part: &&str| SIZES.iter().any(|(name, _)| directory(name) == **part) || part.starts_with("veth");
    let web_server = if parts.iter().any(is_compared) { peers::install() } else { None };
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let nginx = parts.contains(&"tls").then(|| Newest::find(scratch)).transpose()?;
    let isolated = setup::isolate();
    let results = scratch.with_file_name("bench");
    let place = tempfile::tempdir_in(scratch)?;
    for (name, size) in SIZES {
        let directory = place.path().join(directory(name));
        std::fs::create_dir(&directory)?;
        for number in 0..FILES {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + at / 257 + number) as u8).collect();
            std::fs::write(directory.join(format!("f{number}.bin")), bytes)?;
        }
    }
    let mut report = Report::new(&isolated);
    report.condition(format!(
        "servers with one worker on CPU 0, load on CPU 1: {CONNECTIONS} connections, {} s a round, medians of {} rounds",
        scale.seconds, scale.rounds
    ));
    for part in parts {
        let servers = (place.path(), web_server.as_deref());
        let size = SIZES.iter().find(|(name, _)| directory(name) == *part);
        match (*part, size) {
            (_, Some(size)) => transfers(scale, &Network::loopback(), servers, &[*size], &mut report)?,
            ("veth-1500", _) => pair(scale, ("veth, MTU 1500", 1500), servers, &mut report)?,
            ("veth-9000", _) => pair(scale, ("veth, MTU 9000", 9000), servers, &mut report)?,
            ("tls", _) => {
                let nginx = nginx.as_ref().expect("it was looked for");
                secure::measure(scale, nginx, place.path(), &mut report)?;
            }
            (row, _) if cold::is_row(row) => cold::measure(scale, row, &results, &mut report)?,
            ("rules", _) => rules::measure(scale, scratch, &mut report)?,
            ("origin", _) => origin::measure(scale, place.path(), &mut report)?,
            _ => {
                report.condition("RSS has no copies in pipes: up to 32 MiB of the kernel's".into());
                memory(place.path(), &mut report)?;
                starts(scale, place.path(), &mut report)?;
                let size = std::fs::metadata(peers::BINARY)?.len();
                report.figure("binary", mebibytes(size), "MiB");
            }
        }
    }
    report.print();
    let json = match parts {
        [part] => results.join(format!("files-{part}.json")),
        _ => results.join("files.json"),
    };
    report.write(&json)?;
    println!("written: {}", json.display());
    Ok(report)
}

/// The directory with the files of a size.
fn directory(size: &str) -> String {
    size.replace(' ', "")
}

/// All files in a directory, one after the other.
fn in_turn(directory: &str, connections: usize, seconds: f64, rate: Option<f64>) -> Workload<'_> {
    Workload { directory, files: FILES, order: Order::Turn, connections, seconds, rate, seed: 0 }
}

/// All servers on a pair of virtual Ethernet ports.
fn pair(
    scale: Scale,
    (name, mtu): (&'static str, u16),
    servers: (&Path, Option<&Path>),
    report: &mut Report,
) -> Result<(), Error> {
    let Some(network) = Network::veth_pair(name, mtu) else { return Ok(()) };
    transfers(scale, &network, servers, &SIZES, report)
}

/// All servers with all loads on one network.
fn transfers(
    scale: Scale,
    network: &Network,
    (root, web_server): (&Path, Option<&Path>),
    sizes: &[(&'static str, usize)],
    report: &mut Report,
) -> Result<(), Error> {
    let on_loopback = network.is_loopback();
    let mut servers = vec![peers::ours(network, root, OURS, "auto")?, peers::nginx(network, root)?];
    servers.extend(peers::other_build(network, root)?);
    if on_loopback {
        for (name, engine) in [("sendfile", "sendfile"), ("splice", "splice"), ("copy", "copy")] {
            servers.push(peers::ours(network, root, name, engine)?);
        }
    }
    if let Some(program) = web_server {
        servers.push(peers::web_server(network, root, program)?);
    }
    let mut all: Vec<Series> = Vec::new();
    for &(size, bytes) in sizes {
        let loads: &[Load] = if on_loopback { &[Load::Drain, Load::Wrk] } else { &[Load::Drain] };
        for load in loads {
            let series = tables::alternate(scale, network, &servers, size, bytes, *load)?;
            all.extend(series);
        }
    }
    println!("{}", tables::table(network.name(), &all));
    tables::targets(network.name(), &all, report);
    if on_loopback {
        tables::half_load(scale, network, &servers[..2], sizes, &all, report)?;
    }
    Ok(())
}

/// Resident memory while many connections are served.
fn memory(root: &Path, report: &mut Report) -> Result<(), Error> {
    let network = Network::loopback();
    for server in [peers::ours(&network, root, OURS, "auto")?, peers::nginx(&network, root)?] {
        for (size, _) in SIZES {
            drain::run(&network, &server, &in_turn(&directory(size), CROWD, 0.5, None))?;
        }
        let resident = mebibytes(server.usage()?.resident);
        let name = format!("{}, RSS after {CROWD} connections", server.name());
        if server.name() == OURS {
            report.target(name, resident, "MiB", 12.0);
        } else {
            report.figure(name, resident, "MiB");
        }
    }
    Ok(())
}

/// From exec to the first answer.
fn starts(scale: Scale, root: &Path, report: &mut Report) -> Result<(), Error> {
    let network = Network::loopback();
    for start in [peers::ours_started as peers::Start, peers::nginx] {
        let mut took = Vec::new();
        let mut name = "";
        for _ in 0..scale.starts {
            let begin = Instant::now();
            let server: Server = start(&network, root)?;
            took.push(begin.elapsed().as_secs_f64() * 1000.0);
            name = server.name();
        }
        let figure = format!("{name}, exec to first answer");
        let took = median(took.into_iter());
        if name == OURS { report.target(figure, took, "ms", 8.0) } else { report.figure(figure, took, "ms") }
    }
    Ok(())
}
