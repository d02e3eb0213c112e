//! HTTP/2, frame by frame: attempts to exhaust a server.

use std::time::Duration;

use listener::{Config, Endpoint, Limits};

use crate::server::{Client, Server};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// RFC 9113, section 6.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

// RFC 9113, section 7.
pub const PROTOCOL_ERROR: u8 = 1;
pub const ENHANCE_YOUR_CALM: u8 = 11;

/// `GET / HTTP/2` for `http://h`: the static table's entries for method, path and scheme, and the authority.
const GET: &[u8] = b"\x82\x84\x86\x41\x01h";

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn start(limits: Limits) -> Server {
    Server::start(Endpoint::h2c, Config { limits, ..Config::default() })
}

/// A connection on which the preface was sent.
pub fn connect(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(PREFACE).send(frame(SETTINGS, 0, 0, &[]));
    client
}

/// `POST /read` with this many bytes, none of which follow yet.
pub fn post(length: u32) -> Vec<u8> {
    let length = length.to_string();
    // Literals without indexing (RFC 7541, section 6.2.2), with names from the static table.
    let size = u8::try_from(length.len()).expect("short");
    let block = [b"\x83\x86\x04\x05/read\x41\x01h\x0f\x0d", &[size][..], length.as_bytes()].concat();
    frame(HEADERS, END_HEADERS, 1, &block)
}

/// `GET /` that hasn't ended yet.
pub fn get_without_end() -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, GET)
}

/// Its end.
pub fn end() -> Vec<u8> {
    frame(DATA, END_STREAM, 1, b"")
}

/// The error with which the server closes the connection; none if it closes without one.
fn goaway(client: &mut Client) -> Option<u8> {
    let rest = client.rest();
    let mut frames = &rest[..];
    let mut error = None;
    while let [a, b, c, kind, _flags, _, _, _, _, payload @ ..] = frames {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if *kind == GOAWAY && payload.len() >= 8 {
            error = Some(payload[7]);
        }
        frames = payload.get(length..).unwrap_or_default();
    }
    error
}

/// Streams that clients may use, in order.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|n| 2 * n + 1)
}

#[test]
fn what_is_expected_beyond_100_is_refused() {
    let server = start(Limits::default());
    let mut client = connect(&server);
    let expecting = [GET, b"\x00\x06expect\x04more"].concat();
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &expecting));
    client.until(br#""status":417"#);
}

#[test]
fn a_client_that_waits_for_100_gets_it_when_the_body_is_read() {
    let server = start(Limits::default());
    let expecting = |path: &[u8]| {
        let size = u8::try_from(path.len()).expect("short");
        let head = [&[0x83, 0x86, 0x04, size][..], path, b"\x41\x01h\x00\x06expect\x0c100-continue"].concat();
        frame(HEADERS, END_HEADERS, 1, &head)
    };
    // `:status: 100`: the name from the static table, and the value in Huffman's code (RFC 7541, section 6.2.1).
    let proceed = [0x48, 0x82, 0x08, 0x01];
    let mut client = connect(&server);
    client.send(expecting(b"/read")).until(&proceed);
    client.send(frame(DATA, END_STREAM, 1, b"hello")).until(b"5 bytes");
    // The service does not read the body, so nobody asks for it.
    let mut client = connect(&server);
    let read = client.send(expecting(b"/")).until(b"Hello, World!");
    assert!(!read.windows(proceed.len()).any(|part| part == proceed), "{}", read.escape_ascii());
}

#[test]
fn a_client_that_takes_a_drop_at_a_time_is_reset() {
    let server = start(Limits { write_stall: Duration::from_secs(1), ..Limits::default() });
    let mut client = server.connect();
    // SETTINGS_INITIAL_WINDOW_SIZE is 0, so the client accepts no data until it extends a window.
    client.send(PREFACE).send(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let large = b"\x82\x86\x04\x06/large\x41\x01h";
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &large[..]));
    client.0.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]);
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    while !read.windows(reset.len()).any(|part| part == reset) {
        client.send(frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
        use std::io::Read;
        if let Ok(count) = client.0.read(&mut buffer) {
            assert!(count > 0, "closed");
            read.extend_from_slice(&buffer[..count]);
        }
    }
}

#[test]
fn a_client_that_stays_idle_counts_once() {
    let server = start(Limits { idle: Duration::from_secs(1), ..Limits::default() });
    // It is asked to close, and does not.
    assert_eq!(goaway(&mut connect(&server)), Some(0));
    assert_eq!(server.metrics.sum(|worker| &worker.timed_out), 1);
}

#[test]
fn a_client_that_takes_no_refusal_is_reset() {
    let server = start(Limits { write_stall: Duration::from_secs(1), ..Limits::default() });
    let expecting = b"\x82\x84\x86\x41\x01h\x00\x06expect\x04more";
    // CONNECT needs no more than an authority (RFC 9113, section 8.5).
    let connect = b"\x02\x07CONNECT\x41\x01h";
    for head in [&expecting[..], &connect[..]] {
        let mut client = server.connect();
        // No data is accepted.
        client.send(PREFACE).send(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, head));
        client.until(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]));
    }
}

#[test]
fn a_refusal_of_head_has_no_body() {
    let server = start(Limits::default());
    let head = b"\x02\x04HEAD\x84\x86\x41\x01h\x00\x06expect\x04more";
    let mut client = connect(&server);
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &head[..]));
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 3, GET));
    let read = client.until(b"Hello, World!");
    assert!(!read.windows(6).any(|part| part == b"expect"), "{}", read.escape_ascii());
}

#[test]
fn requests_are_answered_in_the_clear_beside_those_of_http1() {
    let server = start(Limits::default());
    let mut client = connect(&server);
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, GET));
    client.until(b"Hello, World!");
    let server = start(Limits::default());
    assert_eq!(server.connect().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").answer().0, 200);
    assert_eq!(server.connect().send("P").send("OST / HTTP/1.1\r\nHost: h\r\n\r\n").answer().0, 200);
}

#[test]
fn rapid_resets_are_shed() {
    let server = start(Limits::default());
    let mut client = connect(&server);
    let mut flood = Vec::new();
    for stream in streams(2000) {
        flood.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, GET));
        flood.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    assert_eq!(goaway(client.send(flood)), Some(ENHANCE_YOUR_CALM));
}

#[test]
fn resets_a_client_provokes_are_shed() {
    let server = start(Limits::default());
    let mut client = connect(&server);
    let mut flood = Vec::new();
    for stream in streams(2000) {
        // Each stream is left open, and then made an error by a window beyond the limit.
        flood.extend(frame(HEADERS, END_HEADERS, stream, b"\x83\x04\x05/read\x86\x41\x01h"));
        flood.extend(frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]));
    }
    assert_eq!(goaway(client.send(flood)), Some(ENHANCE_YOUR_CALM));
}

#[test]
fn endless_continuations_are_shed() {
    let server = start(Limits::default());
    let mut client = connect(&server);
    // Each frame has separate headers: literals without a name in the table, `x: y`.
    let fields = b"\x00\x01x\x01y".repeat(1000);
    let mut flood = frame(HEADERS, END_STREAM, 1, GET);
    (0..1000).for_each(|_| flood.extend(frame(CONTINUATION, 0, 1, &fields)));
    let error = goaway(client.send(flood));
    assert!(matches!(error, Some(PROTOCOL_ERROR | ENHANCE_YOUR_CALM)), "{error:?}");
    // The same with frames that contain nothing.
    let mut client = connect(&server);
    let mut flood = frame(HEADERS, END_STREAM, 1, GET);
    (0..100_000).for_each(|_| flood.extend(frame(CONTINUATION, 0, 1, &[])));
    let error = goaway(client.send(flood));
    assert!(matches!(error, Some(PROTOCOL_ERROR | ENHANCE_YOUR_CALM)), "{error:?}");
}

#[test]
fn fields_beyond_the_limit_are_too_many() {
    let server = start(Limits { fields: 2, ..Limits::default() });
    for (fields, answer) in [(2, &b"Hello, World!"[..]), (3, br#""status":431"#)] {
        let mut client = connect(&server);
        let head = [GET, &b"\x00\x01x\x01y".repeat(fields)].concat();
        client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &head));
        client.until(answer);
    }
}

#[test]
fn a_head_beyond_the_limit_is_no_request() {
    let server = start(Limits { head_bytes: 1000, ..Limits::default() });
    let mut client = connect(&server);
    let fields = [GET, &b"\x00\x01x\x01y".repeat(100)].concat();
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields));
    // When this is answered, everything before it is answered too.
    client.send(frame(PING, 0, 0, b"answered"));
    let read = client.until(b"answered");
    assert!(!read.windows(13).any(|part| part == b"Hello, World!"));
    assert!(read.len() > 9 + 17, "it is told so");
}
