//! What a file costs to serve, beside nginx and static-web-server.
//!
//! `cargo bench -p linerate-files --bench transfer [-- --quick]`. Servers have CPU 0, the load CPU 1; cases
//! alternate. Needs wrk and nginx, installed from Debian packages where root runs it, and static-web-server,
//! installed by cargo into the target directory. Prints a table for each network and the targets, and writes
//! them to `target/bench/files.json`. A missed target is no failure; a wrong answer is.
#![forbid(unsafe_code)]

mod drain;
mod network;
mod peers;
mod tables;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use bench::report::{Report, mebibytes};
use bench::rounds::median;
use bench::server::Server;
use bench::{Error, entry, setup};

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

/// Files asked for in turn: name, bytes, files of that size.
const SIZES: [(&str, usize); 3] = [("2.4 MB", 2_400_000), ("16 KB", 16_384), ("1 KB", 1_024)];
const FILES: usize = 8;
const CONNECTIONS: usize = 64;
/// Connections that memory is measured under.
const CROWD: usize = 512;

const OURS: &str = "linerate-files";
const NGINX: &str = "nginx";

fn main() -> ExitCode {
    if let Some(code) = drain::load_if_asked() {
        return code;
    }
    entry::run(|quick| run(if quick { QUICK } else { FULL }))
}

fn run(scale: Scale) -> Result<(), Error> {
    // Packages come over the network, which is gone once the bench has its own.
    setup::require("wrk", "wrk")?;
    setup::require("nginx", "nginx-light")?;
    let web_server = peers::install();
    let isolated = setup::isolate();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
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
    for network in [Network::loopback()].into_iter().chain(Network::veth_pairs()) {
        transfers(scale, &network, place.path(), web_server.as_deref(), &mut report)?;
    }
    memory(place.path(), &mut report)?;
    starts(scale, place.path(), &mut report)?;
    let size = std::fs::metadata(peers::BINARY)?.len();
    report.figure("binary", mebibytes(size), "MiB");
    report.print();
    let json = results.join("files.json");
    report.write(&json)?;
    println!("written: {}", json.display());
    Ok(())
}

/// The directory of the files of a size.
fn directory(size: &str) -> String {
    size.replace(' ', "")
}

/// All servers under all loads on one network.
fn transfers(
    scale: Scale,
    network: &Network,
    root: &Path,
    web_server: Option<&Path>,
    report: &mut Report,
) -> Result<(), Error> {
    let on_loopback = network.is_loopback();
    let mut servers = vec![peers::ours(network, root, OURS, "auto")?, peers::nginx(network, root)?];
    if on_loopback {
        for (name, engine) in [("sendfile", "sendfile"), ("splice", "splice"), ("copy", "copy")] {
            servers.push(peers::ours(network, root, name, engine)?);
        }
    }
    if let Some(program) = web_server {
        servers.push(peers::web_server(network, root, program)?);
    }
    let mut all: Vec<Series> = Vec::new();
    for (size, bytes) in SIZES {
        let loads: &[Load] = if on_loopback { &[Load::Drain, Load::Wrk] } else { &[Load::Drain] };
        for load in loads {
            let series = tables::alternate(scale, network, &servers, size, bytes, *load)?;
            all.extend(series);
        }
    }
    println!("{}", tables::table(network.name(), &all));
    tables::targets(network.name(), &all, report);
    if on_loopback {
        tables::half_load(scale, network, &servers[..2], &all, report)?;
    }
    Ok(())
}

/// Resident memory while a crowd is served.
fn memory(root: &Path, report: &mut Report) -> Result<(), Error> {
    let network = Network::loopback();
    for server in [peers::ours(&network, root, OURS, "auto")?, peers::nginx(&network, root)?] {
        for (size, _) in SIZES {
            drain::run(&network, &server, &directory(size), FILES, CROWD, 0.5, None)?;
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
