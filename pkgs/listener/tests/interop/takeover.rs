//! A program whose processes take over from each other while clients send requests: shared by the tests of all programs
//! that can do so.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bench::server::free_address;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};
use rustix::process::Signal;
use rustls::HandshakeKind;
use rustls::pki_types::CertificateDer;
use testkit::Server;

use crate::client::{ClientProtocol, Failure, Target};
use crate::load::{Load, LoadRequest};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// How long a process that was replaced waits for connected clients: longer than any is kept from sending.
const DRAIN: &str = "90";

/// Logged by a process that has received sockets and has yet to complete the takeover.
const HANDED: &str = "a process that runs hands over its sockets";

/// The number of workers of a process, where it does not matter.
const WORKERS: u8 = 2;

/// How often a process is killed while it takes over. Some of them will already have done so.
const KILLS: usize = 12;

/// A program, its addresses, and what it needs.
pub struct Program {
    binary: &'static str,
    /// The directory of its files.
    pub directory: tempfile::TempDir,
    /// Its address without TLS.
    pub clear: SocketAddr,
    /// The same with TLS.
    pub secure: SocketAddr,
    /// The operators' address.
    pub admin: SocketAddr,
    /// The certificate it presents at first.
    pub certificate: CertificateDer<'static>,
    flags: Vec<String>,
}

impl Program {
    /// A program with flags in addition to those for its addresses; `flags` gets the directory of its files.
    pub fn new(binary: &'static str, flags: impl Fn(&Path) -> Vec<String>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let made = testkit::certificate(&["localhost"]);
        made.write_in(directory.path());
        let [clear, secure, admin] = [(); 3].map(|()| free_address().expect("a port is free"));
        let flags = flags(directory.path());
        let certificate = made.cert.der().clone();
        Self { binary, directory, clear, secure, admin, certificate, flags }
    }

    /// A path among its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its addresses for clients.
    pub fn target(&self) -> Target {
        Target::new(self.clear, self.secure, std::slice::from_ref(&self.certificate))
    }

    /// Starts a process with this many workers, which operators reach at `admin`, with these additional flags.
    fn spawn(&self, admin: SocketAddr, workers: u8, more: &[&str]) -> Server {
        let text = |name: &str| self.path(name).display().to_string();
        Server::program(self.binary)
            .args(["serve", "--listen", &self.clear.to_string(), "--tls-listen", &self.secure.to_string()])
            .args(["--cert", &text("cert.pem"), "--key", &text("key.pem"), "--admin", &admin.to_string()])
            .args(["--handover", &text("handover"), "--drain-timeout", DRAIN])
            .args(["--workers", &workers.to_string()])
            .args(&self.flags)
            .args(more)
            .spawn()
    }

    /// Starts a process and waits until it serves.
    pub fn start(&self) -> Server {
        self.start_with(WORKERS, &[])
    }

    /// The same with this many workers, and these additional flags.
    pub fn start_with(&self, workers: u8, more: &[&str]) -> Server {
        let mut process = self.spawn(self.admin, workers, more);
        assert!(process.serves(), "{}", process.log());
        process
    }

    /// Starts clients of every kind.
    fn load(&self, request: LoadRequest) -> Vec<Load> {
        let target = self.target();
        let each = |protocol, times| Load::start(&target, protocol, 3, LoadRequest { times, ..request });
        let kept = [
            ClientProtocol::Http1,
            ClientProtocol::Http1Tls,
            ClientProtocol::Http2Tls,
            ClientProtocol::Http3,
        ];
        let once = [ClientProtocol::Http1, ClientProtocol::Http3];
        let loads = kept.map(|protocol| each(protocol, u64::MAX)).into_iter();
        loads.chain(once.map(|protocol| each(protocol, 1))).collect()
    }
}

/// A client with a ticket from one process resumes the session with the next, and with the one after that.
pub fn sessions_are_resumed_by_the_next(program: &Program, path: &str) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(program.certificate.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().expect("versions");
    let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
    let asks = || {
        let name = "localhost".try_into().expect("a name");
        let connection = rustls::ClientConnection::new(Arc::clone(&client), name).expect("a client");
        let stream = TcpStream::connect(program.secure).expect("it listens");
        let mut stream = rustls::StreamOwned::new(connection, stream);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer and the end");
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        stream.conn.handshake_kind()
    };
    let mut processes = vec![program.start()];
    assert_eq!(asks(), Some(HandshakeKind::Full));
    for number in 1..4 {
        assert_eq!(asks(), Some(HandshakeKind::Resumed), "with the same, before number {number}");
        processes.push(program.start());
        assert_eq!(asks(), Some(HandshakeKind::Resumed), "with number {number}");
    }
    processes.iter().for_each(|process| process.kill());
    let _anew = program.start();
    assert_eq!(asks(), Some(HandshakeKind::Full), "with one that was told nothing");
}

/// Waits until a process has logged this; false if it ends instead.
fn logs(process: &Server, text: &str) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ended = process.has_ended().is_some();
        if process.log().contains(text) {
            return true;
        }
        if ended {
            return false;
        }
        assert!(Instant::now() < deadline, "it does not log {text:?}: {}", process.log());
        thread::yield_now();
    }
}

/// Waits for its end; returns its exit code, −1 for a signal.
pub async fn ends(process: &Server) -> i32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = process.has_ended() {
            return status.code().unwrap_or(-1);
        }
        assert!(Instant::now() < deadline, "it does not end: {}", process.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Three processes in a row take over, with more workers and with fewer, each while the previous one still drains, and
/// no client notices. Returns the last, and how many requests were answered. The first may have been started before.
pub async fn three_in_a_row(program: &Program, request: LoadRequest, first: Option<Server>) -> (Server, u64) {
    let mut process = first.unwrap_or_else(|| program.start());
    let loads = program.load(request);
    let mut before = Vec::new();
    for workers in [3, 1, 2] {
        for load in &loads {
            load.answers(20).await;
        }
        let next = tokio::task::block_in_place(|| program.start_with(workers, &[]));
        before.push(std::mem::replace(&mut process, next));
    }
    for load in &loads {
        load.answers(20).await;
    }
    let mut answered = 0;
    let states: Vec<_> = loads.iter().map(|load| Arc::clone(&load.state)).collect();
    for load in loads {
        load.end().await;
    }
    for state in states {
        answered += state.answered.load(Relaxed);
    }
    for old in before {
        let code = ends(&old).await;
        assert_eq!(code, 0, "{}", old.log());
        assert!(old.log().contains("another process has taken over"), "{}", old.log());
        assert!(!old.log().contains("ERROR"), "{}", old.log());
    }
    assert_eq!(process.has_ended(), None);
    (process, answered)
}

/// A process that fails while it takes over changes nothing, and neither does one that is killed while it takes over.
pub async fn one_that_fails_or_is_killed_changes_nothing(program: &Program, request: LoadRequest) {
    let mut process = program.start();
    let loads = program.load(request);
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    for _ in 0..3 {
        for load in &loads {
            load.answers(20).await;
        }
        let failing = program.spawn(held.local_addr().expect("an address"), WORKERS, &[]);
        assert_ne!(ends(&failing).await, 0);
        let log = failing.log();
        assert!(log.contains(HANDED), "{log}");
        let errors: Vec<_> = log.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(matches!(errors[..], [error] if error.contains("already in use")), "{log}");
        assert_eq!(process.has_ended(), None, "{}", process.log());
    }
    // A process that is killed too late has taken over.
    let (begun, mut killed, mut tries) = (Instant::now(), 0, 0);
    while tries < KILLS || (killed == 0 && begun.elapsed() < PATIENCE) {
        tries += 1;
        for load in &loads {
            load.answers(5).await;
        }
        let mut next = program.spawn(program.admin, WORKERS, &[]);
        assert!(logs(&next, HANDED), "{}", next.log());
        // While the process is stopped, its progress can be checked.
        next.signal(Signal::STOP);
        if program.is_waited_for() {
            next.kill();
            killed += 1;
        } else {
            next.signal(Signal::CONT);
            assert!(next.serves(), "{}", next.log());
            assert_eq!(ends(&process).await, 0, "{}", process.log());
            process = next;
        }
        assert_eq!(process.has_ended(), None, "{}", process.log());
    }
    assert!(killed > 0, "all of {tries} were too fast");
    for load in &loads {
        load.answers(20).await;
    }
    let next = tokio::task::block_in_place(|| program.start());
    assert_eq!(ends(&process).await, 0, "{}", process.log());
    for load in &loads {
        load.answers(20).await;
    }
    for load in loads {
        load.end().await;
    }
    drop(next);
}

/// The serving process is killed while another takes over. Its own connections are lost, but nobody is refused.
pub async fn one_that_is_killed_loses_its_own_alone(program: &Program, request: LoadRequest) {
    const CLIENTS: u64 = 8;
    let mut process = program.start();
    let target = program.target();
    let (done, lost, answered) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let (target, done) = (target.clone(), Arc::clone(&done));
        let (lost, answered) = (Arc::clone(&lost), Arc::clone(&answered));
        clients.spawn(async move {
            let protocol = if number % 2 == 0 { ClientProtocol::Http1 } else { ClientProtocol::Http1Tls };
            while !done.load(Relaxed) {
                let mut connection = match target.connect(protocol).await {
                    Ok(connection) => connection,
                    Err(error) => {
                        assert!(!error.contains("refused"), "{error}");
                        // The connection was cut during the TLS handshake.
                        lost.fetch_add(1, Relaxed);
                        continue;
                    }
                };
                match connection.ask(request.path).await {
                    Ok((status, _)) => {
                        assert_eq!(status, request.status);
                        answered.fetch_add(1, Relaxed);
                    }
                    Err(Failure::Unprocessed | Failure::Lost(_)) => {
                        lost.fetch_add(1, Relaxed);
                    }
                }
            }
        });
    }
    let more = async |count: u64| {
        let until = answered.load(Relaxed) + count;
        let deadline = Instant::now() + PATIENCE;
        while answered.load(Relaxed) < until {
            assert!(Instant::now() < deadline, "clients are answered");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for round in 1..=3 {
        more(50).await;
        let mut next = program.spawn(program.admin, WORKERS, &[]);
        assert!(logs(&next, HANDED), "{}", next.log());
        process.kill();
        assert!(tokio::task::block_in_place(|| next.serves()), "{}", next.log());
        process = next;
        more(50).await;
        let lost = lost.load(Relaxed);
        assert!(lost <= round * CLIENTS, "{lost} were lost of {CLIENTS} connections at a time");
    }
    done.store(true, Relaxed);
    while let Some(client) = clients.join_next().await {
        client.expect("nobody is refused");
    }
}

impl Program {
    /// Whether the serving process still waits for another, which has been stopped.
    fn is_waited_for(&self) -> bool {
        let asking = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket");
        let there = SocketAddrUnix::new(self.path("handover")).expect("a path");
        connect(&asking, &there).expect("somebody listens");
        set_socket_timeout(&asking, Timeout::Recv, Some(Duration::from_secs(1))).expect("a timeout");
        let mut said = [0; 200];
        // The other has put its own socket there before it says that it serves.
        let received = recv(&asking, &mut said, RecvFlags::empty());
        received.is_ok_and(|(count, _)| said[..count].starts_with(b"no another process"))
    }
}

/// A process that speaks HTTP/3 is followed by one that does not. Its connections are served to their end.
pub async fn one_without_http3_leaves_its_connections_to_the_last(program: &Program) {
    let old = program.start();
    let (_endpoint, connection) = program.target().quic().await.expect("it listens");
    let new = tokio::task::block_in_place(|| program.start_with(WORKERS, &["--no-http3"]));
    // Of an unknown type, which is read and otherwise ignored (RFC 9114, section 6.2.3).
    let mut stream = connection.open_uni().await.expect("it is there");
    stream.write_all(&[0x21; 64]).await.expect("it is there");
    stream.finish().expect("it is open");
    let taken = tokio::time::timeout(PATIENCE, stream.stopped()).await;
    assert!(matches!(taken, Ok(Ok(_))), "{taken:?}");
    drop((old, new));
}

/// Sends a request without TLS, on a new connection; returns the answer's status and body.
pub fn ask(address: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("nobody is refused");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}");
    write!(stream, "{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("no connection is lost");
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (status, answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
}

/// Clients that constantly write, to find out whether what is acknowledged is kept.
pub struct Writers {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Writers {
    /// Two of them. `write` gets the client's number and the number of its write; it waits until that is acknowledged,
    /// and returns its name.
    pub fn start(write: impl Fn(usize, usize) -> String + Clone + Send + 'static) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let writer = |client| {
            let (done, write) = (Arc::clone(&done), write.clone());
            thread::spawn(move || {
                let mut written = Vec::new();
                while !done.load(Relaxed) {
                    written.push(write(client, written.len()));
                }
                written
            })
        };
        let threads = (0..2).map(writer).collect();
        Self { done, threads }
    }

    /// Ends them; returns what was acknowledged, which must not be empty.
    pub fn finish(self) -> Vec<String> {
        self.done.store(true, Relaxed);
        let join = |thread: JoinHandle<Vec<String>>| thread.join().expect("every write is acknowledged");
        let written: Vec<_> = self.threads.into_iter().flat_map(join).collect();
        assert!(!written.is_empty());
        written
    }
}
