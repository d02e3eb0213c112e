//! Slow clients are cut off after the configured time.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use crate::load::PATIENCE;
use crate::raw::{self, END_HEADERS, END_STREAM, Raw, frame, kind};
use crate::server::Server;

/// The server's timeout here.
const MILLISECONDS: &str = "3000";

/// Sends one byte at a time until the connection is closed; returns what the server said.
fn drip(mut raw: Raw, bytes: &[u8]) -> Vec<u8> {
    raw.0.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    let (begun, mut told, mut buffer) = (Instant::now(), Vec::new(), [0; 1024]);
    for byte in bytes.iter().cycle() {
        assert!(begun.elapsed() < PATIENCE, "not closed");
        // Each read waits a little for what the server has to say.
        match raw.0.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => told.extend_from_slice(&buffer[..count]),
            // A read with a timeout is interrupted when the process is stopped and continued (signal(7)).
            Err(error) if raw::is_slow(&error) || error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if raw.send(&[*byte]).is_err() {
            break;
        }
    }
    told
}

#[test]
fn heads_that_drip() {
    let server = Server::start(&["--patience", MILLISECONDS]);
    let told = drip(Raw::connect(server.clear), b"GET / HTTP/1.1\r\nhost: x\r\nx: ");
    assert_eq!(raw::status(&told), Some(408), "{}", String::from_utf8_lossy(&told));
    drip(Raw::connect(server.secure), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    drip(Raw::connect(server.clear), raw::PREFACE);
    let mut open = Raw::http2(server.clear);
    open.send(&frame(kind::HEADERS, 0, 1, raw::GET)).expect("the server listens");
    open.rest();
}

#[test]
fn connections_that_say_nothing() {
    let server = Server::start(&["--patience", MILLISECONDS]);
    for mut raw in [Raw::connect(server.clear), Raw::connect(server.secure), Raw::http2(server.clear)] {
        raw.rest();
    }
    // The same applies after a request as before one.
    let mut kept = Raw::connect(server.clear);
    kept.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("the server listens");
    assert_eq!(raw::status(&kept.rest()), Some(200));
    let mut kept = Raw::http2(server.clear);
    kept.send(&frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, raw::GET)).expect("the server listens");
    assert!(kept.rest().windows(13).any(|window| window == b"Hello, World!"));
}

#[test]
fn bodies_that_pause() {
    let server = Server::start(&["--patience", MILLISECONDS]);
    for framing in ["content-length: 10\r\n\r\nabc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"] {
        let mut raw = Raw::connect(server.clear);
        raw.send(format!("POST /read HTTP/1.1\r\nhost: x\r\n{framing}").as_bytes())
            .expect("the server listens");
        let told = raw.rest();
        assert_eq!(raw::status(&told), Some(408), "{framing:?}: {}", String::from_utf8_lossy(&told));
    }
}

#[test]
fn responses_that_are_not_read() {
    let server = Server::start(&["--patience", MILLISECONDS]);
    let count = 64 << 20;
    let mut raw = Raw::connect(server.clear);
    raw.send(format!("GET /bytes/{count} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
        .expect("the server listens");
    server.until(|metrics| metrics.sum("interop_listener_timed_out_total") >= 1.0);
    assert!(raw.rest().len() < count, "what was not sent by then is not sent");

    // A window that is never enlarged.
    let mut raw = Raw::http2(server.clear);
    let head = [&b"\x82\x86\x44\x0f/bytes/67108864\x41\x09localhost"[..]].concat();
    raw.send(&frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &head)).expect("the server listens");
    raw.rest();
}
