//! The limits for a visitor's streams, over HTTP/2 and HTTP/3, with the real binary. The table is in
//! [`limits`](crate::limits).

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::until;

use crate::client::{Secure, Version, h3_script};
use crate::raw::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PATIENCE, PREFACE, RST_STREAM, SETTINGS, Stream,
    WINDOW_UPDATE, connect, frame, next, send, serve, shed, tcp, timed_out, told_408,
};
use crate::server::Server;

// RFC 9113, section 7.
const INTERNAL_ERROR: u32 = 2;
const FLOW_CONTROL_ERROR: u32 = 3;
const REFUSED_STREAM: u32 = 7;

// RFC 9114, section 8.1.
const EXCESSIVE_LOAD: &str = "0x107";
const REQUEST_INCOMPLETE: &str = "0x10d";

/// How many streams a client may open at once.
const STREAMS: u32 = 100;

/// The head of a form for the link that asks for a password. It announces this many bytes, none of which follow yet.
fn form(id: u32, length: &str) -> Vec<u8> {
    // Literals without indexing (RFC 7541, section 6.2.2), with names from the static table.
    let size = u8::try_from(length.len()).expect("short");
    let block = [b"\x83\x87\x04\x05/lock\x41\x09localhost\x0f\x0d", &[size][..], length.as_bytes()].concat();
    frame(HEADERS, END_HEADERS, id, &block)
}

/// An HTTP/2 connection, on which the preface has been sent.
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
    assert_eq!((told(3), told(4)), (Some(STREAMS), Some(16 * 1024)));
    let forms: Vec<u8> = (0..=STREAMS).flat_map(|number| form(1 + 2 * number, "10")).collect();
    send(&mut *stream, forms);
    let refused = loop {
        let (kind, id, payload) = next(&mut *stream);
        if kind == RST_STREAM {
            break (id, u32::from_be_bytes(payload[..4].try_into().expect("a code")));
        }
    };
    assert_eq!(refused, (1 + 2 * STREAMS, REFUSED_STREAM));
    server.stop();
}

#[test]
fn forms_under_way_have_a_sum() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "600"]);
    // Forms of 16 KiB, the longest allowed, fill 256 MiB with 16,384 of them: 164 connections with 100 each.
    let forms: Vec<u8> = (0..STREAMS).flat_map(|number| form(1 + 2 * number, "16384")).collect();
    let mut held = Vec::new();
    let begun = Instant::now();
    while shed(&server, "bodies") == 0.0 {
        assert!(begun.elapsed() < 5 * PATIENCE && held.len() < 200, "{} connections find room", held.len());
        let mut stream = http2(&server);
        send(&mut *stream, &forms);
        held.push(stream);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(held.len() >= 163, "after {} connections", held.len());
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

/// A `GET` request for this path.
fn get(id: u32, path: &str) -> Vec<u8> {
    let size = u8::try_from(path.len()).expect("short");
    let block = [b"\x82\x87\x41\x09localhost\x04", &[size][..], path.as_bytes()].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, id, &block)
}

/// A number in a frame.
fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

/// The result for forms that have all arrived before the server reads the first: how many are answered, and the error
/// with which the server ends the connection, if it does.
fn at_once(server: &Server, lengths: &[usize]) -> (usize, Option<u32>) {
    let mut stream = http2(server);
    // Wait for the server's SETTINGS, and for the acknowledgement of ours. Nothing else is then on its way.
    while next(&mut *stream) != (SETTINGS, 0, Vec::new()) {}
    server.signal(Signal::STOP);
    for (id, length) in (1..).step_by(2).zip(lengths) {
        send(&mut *stream, form(id, &length.to_string()));
        send(&mut *stream, frame(DATA, END_STREAM, id, &vec![b'x'; *length]));
    }
    server.signal(Signal::CONT);
    let mut answered = 0;
    while answered < lengths.len() {
        match next(&mut *stream) {
            (HEADERS, ..) => answered += 1,
            (GOAWAY, _, payload) => return (answered, Some(number(&payload[4..8]))),
            _ => {}
        }
    }
    (answered, None)
}

#[test]
fn a_connection_of_http_2_takes_so_much_unread() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "60"]);
    // As much as any client may send before it hears of another window (RFC 9113, section 6.9.2).
    for _ in 0..10 {
        assert_eq!(at_once(&server, &[16 * 1024, 16 * 1024, 16 * 1024, 16 * 1024 - 1]), (4, None));
    }
    // What is more is refused, unless the kernel delivers its end so late that the beginning has been read by then. That
    // happens in most attempts, since the kernel's buffer is hardly larger.
    let begun = Instant::now();
    while at_once(&server, &[16 * 1024; 5]) != (0, Some(FLOW_CONTROL_ERROR)) {
        assert!(begun.elapsed() < PATIENCE, "there is room for more");
    }
    server.stop();
}

/// A server with timeouts of three seconds, and this many bytes at `/robots.txt`.
fn with_robots(secure: &Secure, bytes: usize) -> Server {
    let robots = secure.directory.path().join("robots.txt");
    fs::write(&robots, "x".repeat(bytes)).expect("a writable directory");
    serve(secure, &["--head-timeout", "3", "--robots", robots.to_str().expect("UTF-8")])
}

#[test]
fn who_takes_no_answer_by_http_2_is_cut() {
    let secure = Secure::new();
    let server = with_robots(&secure, 60 * 1024);
    // This client grants no window: its stream is reset, and the connection continues.
    let mut stream = connect(&server, Version::Http2);
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    send(&mut *stream, [PREFACE, &settings, &get(1, "/robots.txt")].concat());
    let reset = loop {
        let (kind, id, payload) = next(&mut *stream);
        assert_ne!(kind, GOAWAY, "{payload:?}");
        if kind == RST_STREAM {
            break (id, number(&payload));
        }
    };
    assert_eq!(reset, (1, INTERNAL_ERROR));
    send(&mut *stream, get(3, "/long"));
    while !matches!(next(&mut *stream), (HEADERS, 3, _)) {}
    // This client grants the largest window, and doesn't read. 14 MiB are more than two sockets hold.
    let mut stream = connect(&server, Version::Http2);
    let before = timed_out(&server);
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
    let requests: Vec<u8> = (0..250).flat_map(|number| get(1 + 2 * number, "/robots.txt")).collect();
    send(&mut *stream, [PREFACE, &settings, &window, &requests].concat());
    until("it is cut", || timed_out(&server) > before);
    server.stop();
}

#[test]
fn who_takes_no_answer_by_http_3_is_cut() {
    let secure = Secure::new();
    // More than the window that the client grants at the start.
    let server = with_robots(&secure, 4 << 20);
    let told = h3_script(&server, "stall", "/robots.txt");
    let (resets, code) = told.trim().split_once(' ').expect("two numbers");
    assert_ne!(resets, "0", "a stream is reset first");
    assert_eq!(code, EXCESSIVE_LOAD);
    until("it is counted", || timed_out(&server) == 1.0);
    server.stop();
}

#[test]
fn half_a_head_and_half_a_form_are_not_waited_for() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "3", "--idle-timeout", "3"]);
    // An incomplete HTTP/2 head isn't a stream yet.
    let mut stream = http2(&server);
    send(&mut *stream, frame(HEADERS, 0, 1, b"\x82\x87"));
    assert!(stream.has_ended());
    let mut stream = http2(&server);
    send(&mut *stream, [form(1, "10"), frame(DATA, 0, 1, b"pass")].concat());
    until("it is told", || told_408(&server) == 1.0);
    assert_eq!(h3_script(&server, "begin", "").trim(), REQUEST_INCOMPLETE);
    server.stop();
}
