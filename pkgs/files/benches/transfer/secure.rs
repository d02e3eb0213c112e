//! What files cost over HTTPS: HTTP/1.1, HTTP/2 and HTTP/3, compared with nginx and Caddy.
//!
//! A client has more work here than its server, so only the server's CPU time is meaningful.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use bench::certificate::{self, CHAIN, KEY};
use bench::h2load::Streams;
use bench::h3load::{self, LoadRequest};
use bench::peers::Newest;
use bench::report::Report;
use bench::rounds::median;
use bench::server::{Placement, Server, free_address};
use bench::wrk::{self, Requests};
use bench::{Error, setup};
use comfy_table::{CellAlignment, Table, presets};

use crate::network::Network;
use crate::peers::{BINARY, OPEN_FILES, PLACEMENT};
use crate::{NGINX, OTHER, OURS, SMALL, Scale, directory};

/// The word that turns the bench's executable into the HTTP/3 load: `h3 ADDRESS PATH BYTES STREAMS SECONDS`.
const LOAD: &str = "h3";

/// What is requested: a size, the requests in flight on each connection, and the protocols. For small files there are
/// many requests, as from a page; the listener without TLS shows what HTTP/1.1 makes of these.
const CASES: [(&str, usize, usize, &[Protocol]); 3] = [
    ("2.4 MB", 2_400_000, 1, &Protocol::ALL),
    ("16 KB", 16_384, 8, &[Protocol::Http2, Protocol::Http3]),
    (SMALL, 1_024, 8, &[Protocol::Http2, Protocol::Http3]),
];
const CONNECTIONS: usize = 8;
const CADDY: &str = "Caddy";

/// The protocols, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    Http3,
}

impl Protocol {
    const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Http3];

    fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// A server that speaks TLS.
struct Peer {
    server: Server,
    secure: SocketAddr,
    http3: bool,
}

/// Measures all servers with all protocols in turn.
pub fn measure(scale: Scale, newest: &Newest, root: &Path, report: &mut Report) -> Result<(), Error> {
    let certified = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    certificate::make(certified.path())?;
    let mut peers = vec![
        ours(Path::new(BINARY), OURS, root, certified.path())?,
        nginx(newest, root, certified.path())?,
        caddy(root, certified.path())?,
    ];
    if let Some(program) = setup::other_build("linerate-files")? {
        peers.push(ours(&program, OTHER, root, certified.path())?);
    }
    let caddy = version(PLACEMENT.command(setup::require("caddy", "caddy")?));
    for (name, version) in [(NGINX, newest.version()), (CADDY, &caddy)] {
        report.condition(format!("{name} by TLS: {version}"));
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "file",
        "protocol",
        "server",
        "Gbit/s",
        "requests/s",
        "CPU s/GB",
        "CPU µs/request",
        "ours over it",
    ]);
    for (size, bytes, streams, protocols) in CASES {
        for &protocol in protocols {
            let case = Case { size, bytes, streams, protocol };
            let all: Vec<&Peer> =
                peers.iter().filter(|peer| protocol != Protocol::Http3 || peer.http3).collect();
            let samples = rounds(scale, &case, &all)?;
            for (peer, theirs) in all.iter().zip(&samples) {
                add(&mut table, &case, peer.server.name(), (&samples[0], theirs), report);
            }
        }
    }
    table.column_iter_mut().skip(3).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    println!("\nTLS, {CONNECTIONS} connections\n{table}");
    Ok(())
}

/// What a round requests.
struct Case {
    size: &'static str,
    bytes: usize,
    streams: usize,
    protocol: Protocol,
}

/// One round's figures.
#[derive(Clone, Copy)]
struct Sample {
    requests: f64,
    seconds: f64,
    cpu: f64,
}

impl Sample {
    fn cpu_us(&self) -> f64 {
        self.cpu * 1e6 / self.requests
    }
}

/// All servers in turn, after a round for warming up.
fn rounds(scale: Scale, case: &Case, peers: &[&Peer]) -> Result<Vec<Vec<Sample>>, Error> {
    let mut all: Vec<Vec<Sample>> = vec![Vec::new(); peers.len()];
    for round in 0..=scale.rounds {
        for (peer, samples) in peers.iter().zip(&mut all) {
            let seconds = if round == 0 { 1 } else { (scale.seconds.round() as u64).max(1) };
            let before = peer.server.usage()?.cpu();
            let (requests, seconds) = load(case, peer, seconds)?;
            let cpu = (peer.server.usage()?.cpu() - before).as_secs_f64();
            if round > 0 {
                samples.push(Sample { requests, seconds, cpu });
            }
        }
    }
    Ok(all)
}

/// A line of the table, and its targets.
fn add(
    table: &mut Table,
    case: &Case,
    server: &str,
    (ours, theirs): (&[Sample], &[Sample]),
    report: &mut Report,
) {
    let Case { size, bytes, protocol, .. } = case;
    let of = |figure: &dyn Fn(&Sample) -> f64| median(theirs.iter().map(figure));
    let requests = of(&|sample| sample.requests / sample.seconds);
    let cpu_us = of(&Sample::cpu_us);
    let gigabytes = |sample: &Sample| sample.requests * *bytes as f64 / 1e9;
    let cpu = of(&|sample| sample.cpu / gigabytes(sample));
    let ratio = median(ours.iter().zip(theirs).map(|(ours, theirs)| ours.cpu_us() / theirs.cpu_us()));
    table.add_row([
        (*size).to_owned(),
        protocol.name().to_owned(),
        server.to_owned(),
        format!("{:.1}", of(&|sample| gigabytes(sample) * 8.0 / sample.seconds)),
        format!("{requests:.0}"),
        format!("{cpu:.3}"),
        format!("{cpu_us:.1}"),
        format!("{ratio:.2}"),
    ]);
    let name = format!("{size} by {}, {server}", protocol.name());
    report.figure(format!("{name}: requests"), requests, "1/s");
    report.figure(format!("{name}: CPU of a request"), cpu_us, "µs");
    report.figure(format!("{name}: CPU by the GB"), cpu, "s");
    let most = match (protocol, *size) {
        (Protocol::Http3, "2.4 MB") => 0.8,
        (_, "2.4 MB") => return,
        _ => 0.7,
    };
    if server == NGINX {
        report.target(format!("{size} by {}, CPU over nginx's", protocol.name()), ratio, "x", most);
    }
}

/// Loads one server, and returns the answered requests and the seconds.
fn load(case: &Case, peer: &Peer, seconds: u64) -> Result<(f64, f64), Error> {
    let path = format!("/{}/f0.bin", directory(case.size));
    if case.protocol == Protocol::Http3 {
        return by_http3(case, peer, &path, seconds);
    }
    let http1 = case.protocol == Protocol::Http1;
    let streams = Streams { count: case.streams, address: Some(peer.secure), tls: true, http1 };
    let load = wrk::Load { threads: 1, connections: CONNECTIONS, seconds };
    let requests = Requests::http2(&path, streams, 200);
    let placement = Placement { workers: 1, cpu: Some(1) };
    let outcome = load.run(&peer.server, placement, case.protocol.name(), &requests)?;
    Ok((outcome.requests as f64, outcome.elapsed.as_secs_f64()))
}

fn by_http3(case: &Case, peer: &Peer, path: &str, seconds: u64) -> Result<(f64, f64), Error> {
    let mut command = Network::loopback().client(env::current_exe()?);
    let Case { bytes, streams, .. } = case;
    command.args([LOAD, &peer.secure.to_string(), path, &bytes.to_string(), &streams.to_string()]);
    command.arg(seconds.to_string());
    let output = command.output().map_err(|source| Error::Run { program: LOAD.into(), source })?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let figures = printed
        .trim()
        .split_once(' ')
        .and_then(|(requests, elapsed)| Some((requests.parse::<f64>().ok()?, elapsed.parse::<f64>().ok()?)));
    figures.filter(|_| output.status.success()).ok_or_else(|| Error::Load {
        server: peer.server.name().into(),
        case: Protocol::Http3.name().into(),
        what: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Runs the HTTP/3 load if the command line says so, and prints the requests and seconds.
pub fn load_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [word, address, path, bytes, streams, seconds] = arguments.as_slice() else { return None };
    if word != LOAD {
        return None;
    }
    let request = LoadRequest::get(path, bytes.parse().ok()?);
    let load = h3load::Load { connections: CONNECTIONS, streams: streams.parse().ok()?, request };
    Some(match load.run(address.parse().ok()?, Duration::from_secs(seconds.parse().ok()?)) {
        Ok(outcome) => {
            println!("{} {}", outcome.requests, outcome.elapsed.as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn ours(program: &Path, name: &'static str, root: &Path, certified: &Path) -> Result<Peer, Error> {
    let (clear, secure) = (free_address()?, free_address()?);
    let mut command = PLACEMENT.command(program);
    command.args(["serve", "--workers", "1", "--listen", &clear.to_string()]);
    command.args(["--tls-listen", &secure.to_string(), "--root"]).arg(root);
    command.arg("--cert").arg(certified.join(CHAIN)).arg("--key").arg(certified.join(KEY));
    Ok(Peer { server: Server::start(name, clear, &mut command)?, secure, http3: true })
}

/// nginx, with HTTP/3 too if it is built in.
fn nginx(newest: &Newest, root: &Path, certified: &Path) -> Result<Peer, Error> {
    let http3 = newest.http3();
    // The kernel encrypts if it can, as for ours.
    let ktls = if newest.ktls() { "ssl_conf_command Options KTLS;" } else { "" };
    let (clear, secure) = (free_address()?, free_address()?);
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let listen = if http3 {
        format!("listen {secure} ssl reuseport; listen {secure} quic reuseport; http2 on; quic_gso on;")
    } else {
        format!("listen {secure} ssl http2 reuseport;")
    };
    let configuration = format!(
        "daemon off; {user} worker_processes 1; pid nginx-tls.pid; error_log stderr crit;\n\
         events {{ worker_connections 8192; multi_accept on; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 4000000000; keepalive_timeout 1h;\n\
         {OPEN_FILES} output_buffers 4 128k; http2_chunk_size 64k; ssl_session_cache shared:s:8m; {ktls}\n\
         default_type application/octet-stream; ssl_certificate {}; ssl_certificate_key {};\n\
         server {{ listen {clear} reuseport; {listen} root {}; }} }}\n",
        certified.join(CHAIN).display(),
        certified.join(KEY).display(),
        root.display()
    );
    let file = certified.join("nginx.conf");
    fs::write(&file, configuration).map_err(Error::file(&file))?;
    let mut command = newest.command(PLACEMENT)?;
    command.arg("-p").arg(certified).arg("-c").arg(&file).args(["-e", "stderr"]);
    Ok(Peer { server: Server::start(NGINX, clear, &mut command)?, secure, http3 })
}

fn caddy(root: &Path, certified: &Path) -> Result<Peer, Error> {
    let program = setup::require("caddy", "caddy")?;
    let (clear, secure) = (free_address()?, free_address()?);
    let site = format!(
        "{{\n admin off\n auto_https off\n}}\nhttp://{clear} {{\n respond \"here\"\n}}\n\
         https://localhost:{port}, https://127.0.0.1:{port} {{\n bind 127.0.0.1\n tls {} {}\n root * {}\n file_server\n}}\n",
        certified.join(CHAIN).display(),
        certified.join(KEY).display(),
        root.display(),
        port = secure.port(),
    );
    let file = certified.join("Caddyfile");
    fs::write(&file, site).map_err(Error::file(&file))?;
    let mut command = PLACEMENT.command(program);
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file);
    command.env("GOMAXPROCS", "1").env("XDG_DATA_HOME", certified);
    Ok(Peer { server: Server::start(CADDY, clear, &mut command)?, secure, http3: true })
}

/// A program's version, in a line.
fn version(mut command: Command) -> String {
    let Ok(output) = command.arg("version").output() else { return "unknown".into() };
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
