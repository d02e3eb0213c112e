//! The limits for a visitor, with the real binary: each of the listener's limits, without and with TLS.
//!
//! | `listener::Config` | here |
//! |---|---|
//! | `limits.connections` | `operation::connections_in_the_clear_and_by_tls_have_one_limit` |
//! | `limits.connections_per_address` | [`connections_of_one_address_have_a_limit`] |
//! | `limits.handshake_time` | [`who_says_nothing_is_let_go`] |
//! | `limits.head_bytes`, `fields`, `body_bytes` | `answers::what_is_no_request_is_refused` |
//! | `limits.head_time` | [`a_head_and_a_form_have_a_deadline_however_they_drip`], `streams::half_a_head_and_half_a_form_are_not_waited_for` |
//! | `limits.body_idle`, `body_time` | the same, and `operation::a_form_that_does_not_come_is_not_waited_for` |
//! | `limits.body_bytes_total` | `streams::forms_under_way_have_a_sum` |
//! | `limits.answer_bytes_total` | [`answers_that_nobody_takes_have_a_sum`] |
//! | `limits.idle` | [`an_idle_connection_is_closed`] |
//! | `limits.write_stall` | [`who_takes_no_answer_is_cut`], `streams::who_takes_no_answer_by_http_2_is_cut`, `streams::who_takes_no_answer_by_http_3_is_cut` |
//! | `http2.streams`, `stream_window` | `streams::http_2_is_told_its_limits_and_held_to_them` |
//! | `http2.connection_window` | `streams::a_connection_of_http_2_takes_so_much_unread` |
//! | `tcp.backlog` | [`so_many_may_wait_to_be_accepted`] |
//! | `drain`, `drain_grace` | [`who_is_not_done_in_time_is_cut_at_the_end`] |
//!
//! `make_room` is off, and `high_water` is at the last descriptor. Instead, the server warns at the start if the
//! connection limit doesn't fit `ulimit -n`. links doesn't use `addresses` that others share, or `offload`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::until;

use crate::client::{Secure, Version, address, metric};
use crate::raw::{
    PATIENCE, PREFACE, SETTINGS, Stream as _, connect, frame, send, serve, shed, tcp, timed_out, told_408,
};

/// HTTP/1.1, without and with TLS.
const BOTH: [Version; 2] = [Version::Plain, Version::Http1];

const GET: &str = "GET /missing HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn connections_of_one_address_have_a_limit() {
    let secure = Secure::new();
    let server = secure.serve(&["--address-connections", "3"]);
    let mut held: Vec<_> =
        [Version::Plain, Version::Http1, Version::Http2].map(|version| connect(&server, version)).into();
    // A connection is admitted once something is answered. TLS starts with the first byte.
    send(&mut *held[0], GET);
    send(&mut *held[1], GET);
    send(&mut *held[2], PREFACE);
    for stream in &mut held {
        assert!(stream.read(&mut [0; 64]).expect("an answer") > 0);
    }
    for version in BOTH {
        let before = shed(&server, "address");
        assert!(tcp(&server, version).has_ended(), "a fourth, {version:?}");
        until("it is counted", || shed(&server, "address") == before + 1.0);
    }
    // A client on the same machine with another address counts separately.
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
    let server = secure.serve(&["--head-timeout", "3"]);
    // The last one sends the start of a TLS 1.3 ClientHello.
    for (version, said) in
        [(Version::Plain, &b""[..]), (Version::Http1, b""), (Version::Http1, b"\x16\x03\x01\x02\x00\x01\x00")]
    {
        let mut stream = tcp(&server, version);
        stream.write_all(said).expect("it reads");
        assert!(stream.has_ended(), "{version:?} {said:?}");
    }
    // The connection ends before the failure is counted.
    let failures = || metric(&server, &["linerate_links_listener_handshake_failures_total"]);
    until("both handshakes are counted", || failures() == 2.0);
    server.stop();
}

#[test]
fn a_head_and_a_form_have_a_deadline_however_they_drip() {
    let secure = Secure::new();
    let server = serve(&secure, &["--head-timeout", "3"]);
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
            // A byte now and then postpones nothing.
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
    let server = secure.serve(&["--idle-timeout", "3"]);
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
    let server = serve(&secure, &["--head-timeout", "3"]);
    for version in BOTH {
        let mut stream = connect(&server, version);
        let before = timed_out(&server);
        send(&mut *stream, GET);
        stream.tcp().set_nonblocking(true).expect("a socket");
        let requests = "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
        let begun = Instant::now();
        while timed_out(&server) == before {
            assert!(begun.elapsed() < PATIENCE, "{version:?}: it is waited for");
            // Send until neither side's buffers accept any more.
            let _ = stream.write(requests.as_bytes());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    server.stop();
}

#[test]
fn answers_that_nobody_takes_have_a_sum() {
    let secure = Secure::new();
    // The test uses a Unix socket, for which the kernel buffers least.
    let path = secure.directory.path().join("socket");
    let server = serve(&secure, &["--listen", &format!("unix:{}", path.display()), "--head-timeout", "600"]);
    // Each connection holds 32 to 36 KiB of answers beyond what the kernel buffers. There is room for 64 MiB.
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
    // Connections that had found room are not closed.
    assert!(shed(&server, "answers") < 1500.0);
    let mut other = tcp(&server, Version::Plain);
    send(&mut other, GET);
    let mut status = [0; 12];
    other.read_exact(&mut status).expect("who takes an answer has one");
    assert_eq!(&status, b"HTTP/1.1 404");
    drop(crowd);
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
