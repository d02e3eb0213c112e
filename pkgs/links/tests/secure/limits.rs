//! What bounds a visitor, on the real program: each limit of the listener, in the clear and by TLS.
//!
//! | `listener::Config` | here |
//! |---|---|
//! | `limits.connections` | `operation::connections_in_the_clear_and_by_tls_have_one_limit` |
//! | `limits.connections_per_address` | [`connections_of_one_address_have_a_limit`] |
//! | `limits.handshake_time` | [`who_says_nothing_is_let_go`] |
//! | `limits.head_bytes`, `fields`, `body_bytes` | `answers::what_is_no_request_is_refused` |
//! | `limits.head_time` | [`a_head_and_a_form_have_a_deadline_however_they_drip`] |
//! | `limits.body_idle`, `body_time` | the same, and `operation::a_form_that_does_not_come_is_not_waited_for` |
//! | `limits.body_bytes_total` | [`forms_under_way_have_a_sum`] |
//! | `limits.answer_bytes_total` | [`answers_that_nobody_takes_have_a_sum`] |
//! | `limits.idle` | [`an_idle_connection_is_closed`] |
//! | `limits.write_stall` | [`who_takes_no_answer_is_cut`] |
//! | `http2.streams`, `stream_window` | [`http_2_is_told_its_limits_and_held_to_them`] |
//! | `tcp.backlog` | [`so_many_may_wait_to_be_accepted`] |
//! | `drain`, `drain_grace` | [`who_is_not_done_in_time_is_cut_at_the_end`] |
//!
//! `make_room` is off, and `high_water` at the last descriptor: a limit of connections that fits `ulimit -n` is warned of at
//! start instead. `http2.connection_window` is a byte more than each connection begins with. Of `admission` and `offload`
//! links has none.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::anybody::Anybody;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::json;

use crate::client::{Secure, Version, address, metric, until};
use crate::server::Server;

/// Longer than anything here takes on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// HTTP/1.1, without and with TLS.
const BOTH: [Version; 2] = [Version::Plain, Version::Http1];

/// A connection by TCP, whatever is over it.
trait Stream: Read + Write {
    fn tcp(&self) -> &TcpStream;

    /// Whether the server has ended it, whatever it said before.
    fn has_ended(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// All that comes until the end.
    fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = self.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref()
    }
}

fn tcp(server: &Server, version: Version) -> TcpStream {
    let stream = TcpStream::connect(address(server, version)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// A connection that offers this protocol by ALPN, where it is by TLS.
fn connect(server: &Server, version: Version) -> Box<dyn Stream> {
    let stream = tcp(server, version);
    if version == Version::Plain {
        return Box::new(stream);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().expect("versions").dangerous();
    let mut config =
        config.with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth();
    config.alpn_protocols =
        vec![if version == Version::Http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    Box::new(StreamOwned::new(connection, stream))
}

fn send(stream: &mut dyn Stream, bytes: impl AsRef<[u8]>) {
    stream.write_all(bytes.as_ref()).and_then(|()| stream.flush()).expect("it reads");
}

/// How many were closed for being slow or idle.
fn timed_out(server: &Server) -> f64 {
    metric(server, &["linerate_links_listener_timed_out_total"])
}

/// How many were told that they take too long.
fn told_408(server: &Server) -> f64 {
    metric(server, &["linerate_links_requests_total", "\"408\""])
}

/// How often there was no room of this kind.
fn shed(server: &Server, reason: &str) -> f64 {
    metric(server, &["linerate_links_listener_shed_total", &format!("reason=\"{reason}\"")])
}

/// A server with a link that asks for a password, and one that leads far.
fn serve(secure: &Secure, flags: &[&str]) -> Server {
    let server = secure.serve(flags);
    let mut api = server.api();
    let locked = json!({ "code": "lock", "target": "https://t.example/", "password": "p" });
    assert_eq!(api.add(&locked).expect("an answer"), 201);
    let long = json!({ "code": "long", "target": format!("https://t.example/{}", "x".repeat(4000)) });
    assert_eq!(api.add(&long).expect("an answer"), 201);
    server
}

const GET: &str = "GET /missing HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn connections_of_one_address_have_a_limit() {
    let secure = Secure::new();
    let server = secure.serve(&["--address-connections", "3"]);
    let mut held: Vec<_> =
        [Version::Plain, Version::Http1, Version::Http2].map(|version| connect(&server, version)).into();
    // They have been let in when something is answered: TLS begins with the first byte.
    send(&mut *held[0], GET);
    send(&mut *held[1], GET);
    send(&mut *held[2], PREFACE);
    for stream in &mut held {
        assert!(stream.read(&mut [0; 64]).expect("an answer") > 0);
    }
    for version in BOTH {
        let before = shed(&server, "address");
        assert!(tcp(&server, version).has_ended(), "a fourth, {version:?}");
        assert_eq!(shed(&server, "address"), before + 1.0);
    }
    // Another of the same machine is another.
    let other = Command::new("curl")
        .args(["--silent", "--interface", "127.0.0.2", "--max-time", "60", "--write-out", "%{http_code}"])
        .args(["--output", "/dev/null", &format!("http://{}/missing", server.public)])
        .output()
        .expect("curl runs");
    assert_eq!(String::from_utf8_lossy(&other.stdout), "404");
    drop(held);
    until("room for another", || {
        let mut stream = tcp(&server, Version::Plain);
        stream.write_all(GET.as_bytes()).is_ok() && matches!(stream.read(&mut [0; 64]), Ok(1..))
    });
    server.stop();
}

#[test]
fn who_says_nothing_is_let_go() {
    let secure = Secure::new();
    let server = secure.serve(&["--head-timeout", "1"]);
    // Half a ClientHello of TLS 1.3, too.
    for (version, said) in
        [(Version::Plain, &b""[..]), (Version::Http1, b""), (Version::Http1, b"\x16\x03\x01\x02\x00\x01\x00")]
    {
        let mut stream = tcp(&server, version);
        stream.write_all(said).expect("it reads");
        assert!(stream.has_ended(), "{version:?} {said:?}");
    }
    assert_eq!(metric(&server, &["linerate_links_listener_handshake_failures_total"]), 2.0);
    server.stop();
}

#[test]
fn a_head_and_a_form_have_a_deadline_however_they_drip() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "1"]);
    let form =
        "POST /lock HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    for version in BOTH {
        for begin in [
            "GET /lock HTTP/1.1\r\nHost: localhost\r\nX: ".to_owned(),
            format!("{form}Content-Length: 900\r\n\r\npassword="),
            format!("{form}Transfer-Encoding: chunked\r\n\r\n384\r\npassword="),
        ] {
            let mut stream = connect(&server, version);
            let before = told_408(&server);
            send(&mut *stream, &begin);
            let begun = Instant::now();
            // A byte now and then puts nothing off.
            while told_408(&server) == before {
                assert!(begun.elapsed() < PATIENCE, "{version:?}: it is waited for: {begin:?}");
                let _ = stream.write_all(b"x").and_then(|()| stream.flush());
                std::thread::sleep(Duration::from_millis(50));
            }
            let told = stream.rest();
            assert!(told.starts_with("HTTP/1.1 408 "), "{version:?} {begin:?}: {told}");
        }
    }
    server.stop();
}

#[test]
fn an_idle_connection_is_closed() {
    let secure = Secure::new();
    let server = secure.serve(&["--idle-timeout", "1"]);
    for version in [Version::Plain, Version::Http1, Version::Http2] {
        let mut stream = connect(&server, version);
        if version == Version::Http2 {
            send(&mut *stream, [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
        } else {
            send(&mut *stream, GET);
        }
        assert!(stream.has_ended(), "{version:?}");
    }
    server.stop();
}

#[test]
fn who_takes_no_answer_is_cut() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "1"]);
    for version in BOTH {
        let mut stream = connect(&server, version);
        let before = timed_out(&server);
        send(&mut *stream, GET);
        stream.tcp().set_nonblocking(true).expect("a socket");
        let requests = "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
        let begun = Instant::now();
        while timed_out(&server) == before {
            assert!(begun.elapsed() < PATIENCE, "{version:?}: it is waited for");
            // Until neither side's buffers take any more.
            let _ = stream.write(requests.as_bytes());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    server.stop();
}

#[test]
fn answers_that_nobody_takes_have_a_sum() {
    let secure = Secure::new();
    // By a Unix socket, of which the kernel holds least.
    let path = secure.directory.path().join("socket");
    let server = serve(&secure, &["--listen", &format!("unix:{}", path.display()), "--head-timeout", "60"]);
    // Each holds 32 to 36 KiB of answers beyond what the kernel takes, and there is room for 64 MiB.
    let requests = "GET /long HTTP/1.1\r\nHost: h\r\n\r\n".repeat(300);
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).expect("what may be had");
    let crowd: Vec<_> = (0..2500)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).expect("it listens");
            stream.write_all(requests.as_bytes()).expect("it reads");
            stream
        })
        .collect();
    until("that some find no room", || shed(&server, "answers") > 0.0);
    // Which are not those who had found it.
    assert!(shed(&server, "answers") < 1500.0);
    let mut other = tcp(&server, Version::Plain);
    send(&mut other, GET);
    let mut status = [0; 12];
    other.read_exact(&mut status).expect("who takes an answer has one");
    assert_eq!(&status, b"HTTP/1.1 404");
    drop(crowd);
    server.stop();
}

// RFC 9113, section 6.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u32 = 7;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The next frame: its kind, its stream, what is in it.
fn next(stream: &mut dyn Stream) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    let [a, b, c, kind, _, id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).expect("a whole frame");
    (kind, u32::from_be_bytes(id), payload)
}

/// A form of so many bytes for the link that asks for a password, of which none follow yet.
fn form(id: u32, length: &str) -> Vec<u8> {
    // Literals without indexing (RFC 7541, section 6.2.2), by the names of the static table.
    let size = u8::try_from(length.len()).expect("short");
    let block = [b"\x83\x87\x04\x05/lock\x41\x09localhost\x0f\x0d", &[size][..], length.as_bytes()].concat();
    frame(HEADERS, END_HEADERS, id, &block)
}

/// A connection of HTTP/2, its preface sent.
fn http2(server: &Server) -> Box<dyn Stream> {
    let mut stream = connect(server, Version::Http2);
    send(&mut *stream, [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
    stream
}

#[test]
fn http_2_is_told_its_limits_and_held_to_them() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "60"]);
    let mut stream = http2(&server);
    let (kind, _, settings) = next(&mut *stream);
    assert_eq!(kind, SETTINGS);
    let told = |which: u16| {
        let found = settings.chunks(6).find(|one| u16::from_be_bytes([one[0], one[1]]) == which);
        found.map(|one| u32::from_be_bytes([one[2], one[3], one[4], one[5]]))
    };
    // MAX_CONCURRENT_STREAMS and INITIAL_WINDOW_SIZE.
    assert_eq!((told(3), told(4)), (Some(256), Some(16 * 1024)));
    let forms: Vec<u8> = (0..257).flat_map(|number| form(1 + 2 * number, "10")).collect();
    send(&mut *stream, forms);
    let refused = loop {
        let (kind, id, payload) = next(&mut *stream);
        if kind == RST_STREAM {
            break (id, u32::from_be_bytes(payload[..4].try_into().expect("a code")));
        }
    };
    assert_eq!(refused, (1 + 2 * 256, REFUSED_STREAM));
    server.stop();
}

#[test]
fn forms_under_way_have_a_sum() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "120"]);
    // 256 MiB of forms of 16 KiB each, which is the longest there may be, are 16,384: 64 connections of 256 each.
    let forms: Vec<u8> = (0..256).flat_map(|number| form(1 + 2 * number, "16384")).collect();
    let mut held = Vec::new();
    let begun = Instant::now();
    while shed(&server, "bodies") == 0.0 {
        assert!(begun.elapsed() < PATIENCE && held.len() < 80, "{} connections find room", held.len());
        let mut stream = http2(&server);
        send(&mut *stream, &forms);
        held.push(stream);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(held.len() >= 64, "after {} connections", held.len());
    drop(held);
    until("that forms are taken again", || {
        let mut stream = tcp(&server, Version::Plain);
        let form = "POST /lock HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
        send(&mut stream, form);
        let mut status = [0; 12];
        stream.read_exact(&mut status).is_ok() && &status == b"HTTP/1.1 100"
    });
    server.stop();
}

#[test]
fn so_many_may_wait_to_be_accepted() {
    let secure = Secure::new();
    let server = secure.serve(&["--backlog", "77", "--workers", "1"]);
    for version in BOTH {
        let port = address(&server, version).port();
        let output =
            Command::new("ss").args(["-Hltn", &format!("sport = :{port}")]).output().expect("ss runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said.split_whitespace().nth(2), Some("77"), "{version:?}: {said}");
    }
    server.stop();
}

#[test]
fn who_is_not_done_in_time_is_cut_at_the_end() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "120", "--drain-timeout", "2"]);
    let [mut plain, mut secret] = BOTH.map(|version| {
        let mut stream = connect(&server, version);
        send(&mut *stream, "GET /lock HTTP/1.1\r\nHost: ");
        stream
    });
    until("that both are let in", || metric(&server, &["listener_open", "http1"]) == 2.0);
    server.terminate();
    assert!(server.wait(PATIENCE).success());
    assert!(plain.has_ended() && secret.has_ended());
}
