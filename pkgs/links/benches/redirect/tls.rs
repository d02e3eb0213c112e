//! What HTTPS costs: a redirect with HTTP/1.1, HTTP/2 and HTTP/3, handshakes, and idle connections, compared with
//! nginx.
//!
//! The server has CPU 0 and the load CPU 1, since a client has more work than its server: it verifies what the server
//! has signed, and encrypts as much. Only the server's CPU time is meaningful.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use bench::Error;
use bench::certificate::{self, CHAIN, KEY};
use bench::h2load::Streams;
use bench::h3load::{self, LoadRequest};
use bench::peers::{Newest, Nginx};
use bench::report::{Report, find, mebibytes};
use bench::rounds::{LoadedServer, alternate_loads};
use bench::server::{Placement, Server, free_address};
use bench::tlsload::{Group, Visit};
use bench::wrk::{self, Requests};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service::workers;

use crate::{FEW, NGINX, Scale, codes, links};

const SERVER: Placement = Placement { workers: 1, cpu: Some(0) };
const LOAD: Placement = Placement { workers: 1, cpu: Some(LOAD_CPU) };
const LOAD_CPU: usize = 1;

const HTTP1: &str = "HTTP/1.1";
const HTTP2: &str = "HTTP/2";
const HTTP3: &str = "HTTP/3";
/// The case of a new connection without TLS for each request.
const CLEAR: &str = "in the clear";

/// For HTTP/2 and HTTP/3: connections, and requests in flight at once on each.
const CONNECTIONS: usize = 16;
const STREAMS: usize = 10;
/// Handshakes in flight at once.
const CLIENTS: usize = 16;

/// Cases of handshakes: their name, the key exchange, and whether they are resumed.
const HANDSHAKES: [(&str, Group, bool); 6] = [
    ("P-256, full", Group::P256, false),
    ("P-256, resumed", Group::P256, true),
    ("X25519, full", Group::X25519, false),
    ("X25519, resumed", Group::X25519, true),
    ("X25519MLKEM768, full", Group::X25519MlKem768, false),
    ("X25519MLKEM768, resumed", Group::X25519MlKem768, true),
];

/// A process's open files that are not connections.
const OTHER_FILES: u64 = 200;

/// A server that speaks TLS.
struct Peer {
    server: Server,
    secure: SocketAddr,
    /// The status of its redirects.
    status: u16,
    http3: bool,
    post_quantum: bool,
}

/// Measures all cases.
pub fn measure(scale: &Scale, nginx: &Newest, scratch: &Path, report: &mut Report) -> Result<(), Error> {
    let (rounds, time) = scale.secure;
    report.condition(format!(
        "by TLS: server with one worker on CPU 0, load on CPU {LOAD_CPU}; {rounds} rounds of {time:?} of all cases in turn; \
         medians; {NGINX}: {}; certificate of ECDSA by P-256",
        nginx.version()
    ));
    report.condition(format!(
        "{HTTP1}: wrk, {} connections; {HTTP2}: h2load, {HTTP3}: quinn, {CONNECTIONS} connections of {STREAMS} requests at \
         once; handshakes: {CLIENTS} at once, TLS 1.3, a request each; {CLEAR:?}: wrk, a connection a request",
        scale.connections
    ));
    certificate::make(scratch)?;
    let (database, _) = links::import(scratch, FEW)?;
    let peers = start(nginx, scratch, &database, "busy")?;
    let cases = cases(scale, &peers);
    let series = alternate_loads(rounds, time, &cases)?;
    drop(cases);
    report.add(&series, &[NGINX, links::OTHER]);
    let mut target = |case: &str, limit: f64| {
        let (ours, theirs) = (find(&series, links::NAME, case), find(&series, NGINX, case));
        if let Some((ours, theirs)) = ours.zip(theirs) {
            report.target(format!("{case} / {NGINX}"), ours.cpu_ratio(theirs), "x", limit);
        }
    };
    target(HTTP1, 1.0);
    target(HTTP2, 0.6);
    target(HTTP3, 0.7);
    for (case, ..) in HANDSHAKES {
        target(case, 1.0);
    }
    target(CLEAR, 1.0);
    report.no_worse(&series, (links::NAME, links::OTHER), |_| true);
    drop(peers);
    idle(scale, nginx, scratch, &database, report)
}

/// Starts our server first, and then its peers. Each of ours has its own copy of `database`, named after `purpose`.
fn start(nginx: &Newest, scratch: &Path, database: &Path, purpose: &str) -> Result<Vec<Peer>, Error> {
    let mut peers = Vec::new();
    for (build, other) in [("ours", false), ("other", true)] {
        let secure = free_address()?;
        let address = secure.to_string();
        let (chain, key) =
            (scratch.join(CHAIN).display().to_string(), scratch.join(KEY).display().to_string());
        let arguments = ["--tls-listen", &address, "--cert", &chain, "--key", &key, "--idle-timeout", "3600"];
        let copy = format!("{purpose}-{build}");
        let server = if other {
            links::serve_other(&links::copy_for_other(database, &copy)?, SERVER, &arguments)?
        } else {
            Some(links::serve(&links::copy(database, &copy)?, SERVER, &arguments)?)
        };
        let peer = |server| Peer { server, secure, status: 307, http3: true, post_quantum: true };
        peers.extend(server.map(peer));
    }
    peers.insert(1, start_nginx(nginx, scratch)?);
    Ok(peers)
}

/// Starts nginx with the best settings for this purpose: small records, TLS 1.2 sessions shared by all workers, TLS 1.3
/// sessions in tickets, batches of datagrams.
fn start_nginx(nginx: &Newest, scratch: &Path) -> Result<Peer, Error> {
    let (clear, secure) = (free_address()?, free_address()?);
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let listen = if nginx.http3() {
        format!(
            "listen {secure} ssl reuseport backlog=4096; listen {secure} quic reuseport; http2 on; quic_gso on;"
        )
    } else {
        format!("listen {secure} ssl http2 reuseport backlog=4096;")
    };
    let configuration = format!(
        "daemon off; {user} worker_processes {}; pid nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 16384; multi_accept on; }}\n\
         http {{ access_log off; keepalive_requests 4000000000; keepalive_timeout 1h;\n\
         ssl_session_cache shared:s:8m; ssl_session_timeout 1h; ssl_buffer_size 4k;\n\
         ssl_certificate {}; ssl_certificate_key {};\n\
         server {{ listen {clear} reuseport backlog=4096; {listen} {} }} }}\n",
        SERVER.workers,
        scratch.join(CHAIN).display(),
        scratch.join(KEY).display(),
        Nginx::redirecting(),
    );
    let file = scratch.join("nginx.conf");
    fs::write(&file, configuration).map_err(Error::file(&file))?;
    let mut command = nginx.command(SERVER)?;
    command.arg("-p").arg(scratch).arg("-c").arg(&file).args(["-e", "stderr"]);
    let server = Server::start(NGINX, clear, &mut command)?;
    Ok(Peer {
        server,
        secure,
        status: Nginx::STATUS,
        http3: nginx.http3(),
        post_quantum: nginx.post_quantum(),
    })
}

fn cases<'a>(scale: &'a Scale, peers: &'a [Peer]) -> Vec<LoadedServer<'a>> {
    let path = codes::path(0);
    let mut cases: Vec<LoadedServer<'a>> = Vec::new();
    let by_program = |connections| {
        move |peer: &'a Peer, name, requests: Requests| LoadedServer {
            server: &peer.server,
            name,
            load: Box::new(move |time| {
                let seconds = time.as_secs().max(1);
                wrk::Load { threads: 1, connections, seconds }.run(&peer.server, LOAD, name, &requests)
            }),
        }
    };
    for peer in peers {
        let requests = Requests::same(&path, peer.status).by_tls(peer.secure);
        cases.push(by_program(scale.connections)(peer, HTTP1, requests));
    }
    for peer in peers {
        let streams = Streams { count: STREAMS, address: Some(peer.secure), tls: true, http1: false };
        let requests = Requests::http2(&path, streams, peer.status);
        cases.push(by_program(CONNECTIONS)(peer, HTTP2, requests));
    }
    for peer in peers.iter().filter(|peer| peer.http3) {
        let request = LoadRequest::get(&path, 0).answered(peer.status);
        let load = h3load::Load { connections: CONNECTIONS, streams: STREAMS, request };
        cases.push(by_thread(peer, HTTP3, move |time| {
            load.run(peer.secure, time).map(|outcome| outcome.summary())
        }));
    }
    for (name, group, resumed) in HANDSHAKES {
        let able = |peer: &&Peer| peer.post_quantum || group != Group::X25519MlKem768;
        for peer in peers.iter().filter(able) {
            let visit = Visit { group, resumed, path: path.clone(), status: peer.status };
            cases.push(by_thread(peer, name, move |time| visit.again(peer.secure, CLIENTS, time)));
        }
    }
    for peer in peers {
        cases.push(by_program(CLIENTS)(peer, CLEAR, Requests::closing(&path, peer.status)));
    }
    cases
}

/// A load in this process. Its thread is pinned while it runs.
fn by_thread<'a>(
    peer: &'a Peer,
    name: &'static str,
    load: impl Fn(Duration) -> Result<wrk::Outcome, String> + Sync + 'a,
) -> LoadedServer<'a> {
    let load = Box::new(move |time| {
        pinned(|| load(time)).map_err(|what| Error::Load {
            server: peer.server.name().into(),
            case: name.into(),
            what,
        })
    });
    LoadedServer { server: &peer.server, name, load }
}

/// Runs `what` on the load's CPU.
fn pinned<R: Send>(what: impl FnOnce() -> Result<R, String> + Send) -> Result<R, String> {
    let pinned = || {
        workers::pin(LOAD_CPU);
        what()
    };
    thread::scope(|scope| scope.spawn(pinned).join().map_err(|_| "the load panicked".to_owned())?)
}

/// Resident memory with connections that have sent one request and are idle.
fn idle(
    scale: &Scale,
    nginx: &Newest,
    scratch: &Path,
    database: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let open = open_files(scale.idle as u64 + OTHER_FILES);
    if open < scale.idle as u64 + OTHER_FILES {
        report.condition(format!("no RSS with {} idle connections: {open} files may be open", scale.idle));
        return Ok(());
    }
    for peer in start(nginx, scratch, database, "idle")? {
        let just_started = peer.server.usage()?.resident;
        let visit = Visit { group: Group::X25519, resumed: false, path: codes::path(0), status: peer.status };
        let held = pinned(|| visit.hold(peer.secure, scale.idle)).map_err(|what| Error::Load {
            server: peer.server.name().into(),
            case: "idle".into(),
            what,
        })?;
        let resident = peer.server.usage()?.resident;
        drop(held);
        let name = peer.server.name();
        let figure = format!("{name}, RSS with {} idle connections by TLS", scale.idle);
        if name == links::NAME {
            report.target(figure, mebibytes(resident), "MiB", 400.0);
        } else {
            report.figure(figure, mebibytes(resident), "MiB");
        }
        let each = resident.saturating_sub(just_started) as f64 / scale.idle as f64 / 1024.0;
        report.figure(format!("{name}, an idle connection by TLS"), each, "KiB");
    }
    Ok(())
}

/// How many files this process and its children may have open, after asking for `wanted`.
fn open_files(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current else { return u64::MAX };
    if current >= wanted || maximum.is_some_and(|most| most < wanted) {
        return current;
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    if raised.is_ok() { wanted } else { current }
}
