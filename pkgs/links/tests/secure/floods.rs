//! HTTP/2 clients that try to exhaust the real binary. Their requests are plain, so they are answered before h2 sees
//! them.

use std::io::Write;
use std::time::{Duration, Instant};

use testkit::until;

use crate::client::{Secure, Version, ask_one, metric, request};
use crate::raw::{
    END_HEADERS, END_STREAM, GOAWAY, HEADERS, PATIENCE, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    connect, frame, next, send, serve, timed_out,
};
use crate::server::Server;

// RFC 9113, sections 6 and 7.
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const PROTOCOL_ERROR: u32 = 1;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

const WHOLE: u8 = END_STREAM | END_HEADERS;

/// `GET /long`.
const LONG: &[u8] = b"\x82\x87\x41\x09localhost\x04\x05/long";

/// A name and a value of 4064 bytes, which are added to the dynamic table and fill it.
fn large() -> Vec<u8> {
    [b"\x40\x01a\x7f\xdf\x1e", &[b'x'; 4062][..]].concat()
}

/// The error code with which a connection ends after this is sent.
fn ended(server: &Server, flood: &[u8]) -> u32 {
    let mut stream = connect(server, Version::Http2);
    send(&mut *stream, [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
    // The connection may be closed before everything is sent.
    let _ = stream.write_all(flood).and_then(|()| stream.flush());
    loop {
        let (kind, _, payload) = next(&mut *stream);
        if kind == GOAWAY {
            return u32::from_be_bytes(payload[4..8].try_into().expect("a code"));
        }
    }
}

/// The frames for this many streams.
fn streams(count: u32, frames: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(|number| frames(2 * number + 1)).collect()
}

#[test]
fn who_wears_a_server_out_is_sent_away() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "60"]);
    let asked = |stream| frame(HEADERS, WHOLE, stream, LONG);
    let begun = frame(HEADERS, END_STREAM, 1, LONG);
    let block = |block: &[u8]| frame(HEADERS, WHOLE, 1, &[LONG, block].concat());
    for (name, flood, error) in [
        (
            "rapid reset (CVE-2023-44487)",
            streams(2000, |stream| [asked(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()),
            ENHANCE_YOUR_CALM,
        ),
        (
            "windows of streams that are answered, again and again",
            [asked(1), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]).repeat(1000)].concat(),
            ENHANCE_YOUR_CALM,
        ),
        (
            "frames of a head that never ends (CVE-2024-27316)",
            [begun.clone(), frame(CONTINUATION, 0, 1, b"").repeat(1000)].concat(),
            ENHANCE_YOUR_CALM,
        ),
        (
            "a head of many frames",
            [begun.clone(), frame(CONTINUATION, 0, 1, &b"\x00\x01x\x01y".repeat(3000)).repeat(4)].concat(),
            ENHANCE_YOUR_CALM,
        ),
        ("a head that is interrupted", [begun, asked(3)].concat(), PROTOCOL_ERROR),
        (
            "a line of 4 KiB, a thousand times in as many bytes",
            block(&[large(), vec![0xbe; 1000]].concat()),
            ENHANCE_YOUR_CALM,
        ),
        (
            "a table larger than may be",
            frame(HEADERS, WHOLE, 1, &[b"\x3f\xe2\x1f", LONG].concat()),
            COMPRESSION_ERROR,
        ),
        ("a table that changes within a head", block(b"\x20"), COMPRESSION_ERROR),
        ("a line that there is not", block(b"\xff\xff\xff\xff\x7f"), COMPRESSION_ERROR),
    ] {
        assert_eq!(ended(&server, &flood), error, "{name}");
    }
    // Other clients have not noticed anything.
    assert_eq!(ask_one(&server, Version::Http2, request("GET", "/long", &[])).status, 307);
    server.stop();
}

/// curl 7.88 behaves like this.
#[test]
fn who_resets_what_has_been_answered_is_answered_on_one_connection() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "60"]);
    let mut stream = connect(&server, Version::Http2);
    send(&mut *stream, [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
    for id in (1..1000).step_by(2) {
        send(&mut *stream, frame(HEADERS, WHOLE, id, LONG));
        loop {
            let (kind, _, payload) = next(&mut *stream);
            assert_ne!(kind, GOAWAY, "{id}: {payload:?}");
            if kind == HEADERS {
                break;
            }
        }
        send(&mut *stream, frame(RST_STREAM, 0, id, &[0, 0, 0, 5]));
    }
    server.stop();
}

#[test]
fn a_table_that_changes_with_each_request_costs_nobody_else() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "60"]);
    let mut stream = connect(&server, Version::Http2);
    send(&mut *stream, [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
    // The table is emptied, enlarged to its maximum, and filled, alternating with a reference to the entry that fills
    // it.
    let sizes = b"\x20\x3f\xe1\x1f".repeat(50);
    let ask = b"\x82\x87\x01\x09localhost\x04\x05/long";
    let filled = [&sizes[..], ask, &large()].concat();
    let named = [&ask[..], b"\xbe"].concat();
    let mut answered = 0;
    for turn in 0..200 {
        let id = 4 * turn + 1;
        send(
            &mut *stream,
            [frame(HEADERS, WHOLE, id, &filled), frame(HEADERS, WHOLE, id + 2, &named)].concat(),
        );
        while answered < 2 * (turn + 1) {
            let (kind, _, payload) = next(&mut *stream);
            assert_ne!(kind, GOAWAY, "{payload:?}");
            answered += u32::from(kind == HEADERS);
        }
    }
    assert_eq!(metric(&server, &["linerate_links_requests_total", "\"307\""]), 400.0);
    server.stop();
}

#[test]
fn who_takes_nothing_is_answered_no_more_and_cut() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "3", "--idle-timeout", "3"]);
    for (name, unit) in [
        ("requests", None),
        ("pings", Some(frame(PING, 0, 0, b"12345678"))),
        ("settings", Some(frame(SETTINGS, 0, 0, b""))),
    ] {
        let mut stream = connect(&server, Version::Http2);
        let before = timed_out(&server);
        send(&mut *stream, [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
        stream.tcp().set_nonblocking(true).expect("a socket");
        let begun = Instant::now();
        let mut id = 1;
        while timed_out(&server) == before {
            assert!(begun.elapsed() < PATIENCE, "{name} are waited for");
            // Send until neither side's buffers accept any more. rustls sends what it holds before it accepts more.
            let more: Vec<u8> = (0..500)
                .flat_map(|_| {
                    id += 2;
                    unit.clone().unwrap_or_else(|| frame(HEADERS, WHOLE, id, LONG))
                })
                .collect();
            if stream.flush().is_ok() {
                let _ = stream.write(&more);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    until("room for others", || ask_one(&server, Version::Http2, request("GET", "/long", &[])).status == 307);
    server.stop();
}
