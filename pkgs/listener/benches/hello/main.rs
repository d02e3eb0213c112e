//! What a hello costs, compared with axum::serve, actix-web and nginx: over HTTP/1.1, HTTP/2 with and without TLS, and
//! on a new connection.
//!
//! `cargo bench -p linerate-listener --bench hello [-- [--quick] [--strict]]`. Needs wrk, h2load and nginx, and
//! installs them from Debian packages when root runs it. Prints one table and the targets, and writes both to
//! `target/bench/listener.json`, and the bars to `target/bench/listener.svg`. An unexpected answer is a failure, and
//! with `--strict` so is a missed target.
#![forbid(unsafe_code)]

mod peers;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use bench::h2load::Streams;
use bench::peers::Nginx;
use bench::report::{Report, find};
use bench::rounds::{Case, Series, alternate};
use bench::server::{Placement, Server, free_address};
use bench::wrk::{Load, Requests};
use bench::{Error, certificate, chart, entry, setup};

use peers::{ACTIX, AXUM, OURS, OURS_AXUM};

// The peers use it too, so that they have what the listener has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NGINX: &str = "nginx";

/// Server and load take turns on one CPU. No scheduler decides which worker sleeps, so rounds differ least.
const ONE_CORE: Placement = Placement { workers: 1, cpu: Some(0) };
/// Two workers, which share all CPUs with the load.
const SPREAD: Placement = Placement { workers: 2, cpu: None };

const HELLO: &str = "hello";
const PIPELINED: &str = "pipelined x16";
const CONNECT: &str = "connect";
const H2C: &str = "HTTP/2";
const H2: &str = "HTTP/2, TLS";
const HELLO_SPREAD: &str = "hello, 2 workers";

/// Requests in flight at once on an HTTP/2 connection.
const STREAMS: usize = 10;

fn main() -> ExitCode {
    if let Some(code) = peers::serve_if_asked() {
        return code;
    }
    entry::run(run)
}

fn run(quick: bool) -> Result<Report, Error> {
    // Packages come from the network, which is gone once the bench has its own.
    for (program, package) in [("wrk", "wrk"), ("h2load", "nghttp2-client"), ("nginx", "nginx-light")] {
        setup::require(program, package)?;
    }
    let network = setup::isolate();
    eprintln!("{network}");
    let (rounds, seconds) = if quick { (1, 1) } else { (3, 3) };
    let load = |threads, connections| Load { threads, connections, seconds };

    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let results = scratch.with_file_name("bench");
    let scratch = tempfile::tempdir_in(scratch)?;
    let mut report = Report::new(&network);
    report.condition(format!("{rounds} rounds of all cases in turn; medians"));
    report.condition(format!(
        "1 worker and {} on CPU 0, except where 2 workers and the load have all",
        load(1, 64)
    ));
    report.condition(format!("HTTP/2: h2load, 16 connections of {STREAMS} requests at once"));
    report.condition("the article's 140,000 requests/s were measured on its own machine, end to end".into());

    let servers = Servers::start(scratch.path())?;
    let mut cases = Vec::new();
    cases.extend(servers.cases(&load(1, 64), &load(1, 16)));
    let spread = Spread::start()?;
    cases.extend(spread.cases(&load(2, 64)));
    let series = alternate(rounds, &cases)?;
    report.add(&series, &[AXUM, NGINX]);
    targets(&mut report, &series);
    report.print();
    let (json, svg) = (results.join("listener.json"), results.join("listener.svg"));
    report.write(&json)?;
    chart::write(&svg, "CPU time per hello over HTTP/1.1", HELLO, &report.rows)?;
    println!("written: {} {}", json.display(), svg.display());
    Ok(report)
}

fn targets(report: &mut Report, series: &[Series]) {
    let get = |server, case| find(series, server, case).expect("all cases were measured");
    let hello = get(OURS, HELLO);
    report.target("hello / axum::serve", hello.cpu_ratio(get(AXUM, HELLO)), "x", 0.9);
    report.target("hello / nginx", hello.cpu_ratio(get(NGINX, HELLO)), "x", 1.0);
    let spread = get(OURS, HELLO_SPREAD);
    report.target("hello, 2 workers / axum::serve", spread.cpu_ratio(get(AXUM, HELLO_SPREAD)), "x", 0.9);
    report.target("hello, 2 workers / nginx", spread.cpu_ratio(get(NGINX, HELLO_SPREAD)), "x", 1.0);
}

/// A path that nginx answers like the others.
fn nginx(placement: Placement, more: &str) -> Result<Nginx, Error> {
    let answer = peers::ANSWER;
    let location = format!("location / {{ default_type text/plain; return 200 \"{answer}\"; }}");
    Nginx::serving(placement, &format!("{more}{location}"))
}

/// The servers on one CPU.
struct Servers {
    ours: Server,
    ours_tls: (Server, SocketAddr),
    with_axum: Server,
    axum: Server,
    actix: Server,
    nginx: Nginx,
    /// nginx's address for HTTP/2 without TLS, which it can't serve together with HTTP/1.1.
    nginx_h2c: SocketAddr,
    nginx_tls: SocketAddr,
}

impl Servers {
    fn start(scratch: &Path) -> Result<Self, Error> {
        certificate::make(scratch)?;
        let (chain, key) = (scratch.join(certificate::CHAIN), scratch.join(certificate::KEY));
        let (ours_tls, nginx_h2c, nginx_tls) = (free_address()?, free_address()?, free_address()?);
        let more = format!(
            "listen {nginx_h2c} http2 reuseport; listen {nginx_tls} ssl http2 reuseport;\n\
             ssl_certificate {}; ssl_certificate_key {};\n",
            chain.display(),
            key.display()
        );
        Ok(Self {
            ours: peers::start(OURS, ONE_CORE)?,
            ours_tls: (peers::start_tls(ONE_CORE, ours_tls, scratch)?, ours_tls),
            with_axum: peers::start(OURS_AXUM, ONE_CORE)?,
            axum: peers::start(AXUM, ONE_CORE)?,
            actix: peers::start(ACTIX, ONE_CORE)?,
            nginx: nginx(ONE_CORE, &more)?,
            nginx_h2c,
            nginx_tls,
        })
    }

    fn cases(&self, http1: &Load, http2: &Load) -> Vec<Case<'_>> {
        let nginx = self.nginx.server();
        let all = [&self.ours, &self.with_axum, &self.axum, &self.actix, nginx];
        let streams =
            |address, tls| Requests::http2("/", Streams { count: STREAMS, address, tls, http1: false }, 200);
        let mut cases = Vec::new();
        let mut add = |server, name, requests: &Requests, load: &Load| {
            let (requests, load) = (requests.clone(), *load);
            cases.push(Case { server, name, requests, load, placement: ONE_CORE });
        };
        for (name, requests) in [
            (HELLO, Requests::same("/", 200)),
            (PIPELINED, Requests::pipelined("/", 16, 200)),
            (CONNECT, Requests::closing("/", 200)),
        ] {
            all.iter().for_each(|server| add(server, name, &requests, http1));
        }
        for server in [&self.ours, &self.with_axum, &self.axum] {
            add(server, H2C, &streams(None, false), http2);
        }
        add(nginx, H2C, &streams(Some(self.nginx_h2c), false), http2);
        add(&self.ours_tls.0, H2, &streams(Some(self.ours_tls.1), true), http2);
        add(nginx, H2, &streams(Some(self.nginx_tls), true), http2);
        cases
    }
}

/// The servers that use all CPUs.
struct Spread {
    servers: [Server; 2],
    nginx: Nginx,
}

impl Spread {
    fn start() -> Result<Self, Error> {
        let start = |name| peers::start(name, SPREAD);
        Ok(Self { servers: [start(OURS)?, start(AXUM)?], nginx: nginx(SPREAD, "")? })
    }

    fn cases(&self, load: &Load) -> Vec<Case<'_>> {
        let all = self.servers.iter().chain([self.nginx.server()]);
        let requests = Requests::same("/", 200);
        all.map(|server| Case {
            server,
            name: HELLO_SPREAD,
            requests: requests.clone(),
            load: *load,
            placement: SPREAD,
        })
        .collect()
    }
}
