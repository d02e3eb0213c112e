//! Services that panic, hang and die.

use std::os::unix::net::UnixDatagram;

use http::StatusCode;
use testkit::until;

use crate::client::{ClientProtocol, Failure, Target};
use crate::load::{Load, LoadRequest, PATIENCE};
use crate::raw::Raw;
use crate::server::Server;

/// Waits until this many lines of a log contain a word.
fn logged(server: &Server, word: &str, times: usize) {
    until(word, || server.log().lines().filter(|line| line.contains(word)).count() >= times);
}

#[tokio::test]
async fn a_panic_costs_its_request_and_nobody_elses() {
    // One worker, so that requests that panic and others share a thread.
    let server = Server::start(&["--workers", "1"]);
    let target = Target::new(server.clear, server.secure, &server.certificate.all());
    let others = ClientProtocol::ALL
        .map(|protocol| Load::start(&target, protocol, 1, LoadRequest::of("/", "Hello, World!")));
    let mut panics = 0;
    for protocol in ClientProtocol::ALL {
        for path in ["/panic?a", "/panic/later"] {
            let mut connection = target.connect(protocol).await.expect("it listens");
            let (status, body) = connection.ask(path).await.expect("an answer");
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{protocol:?} {path}");
            assert!(body.starts_with(b"{\"type\":\"about:blank\""), "{protocol:?} {path}: {body:?}");
            panics += 1;
            // With HTTP/1.1, a panic ends the connection, otherwise the stream.
            let again = connection.ask("/").await;
            let ends = matches!(protocol, ClientProtocol::Http1 | ClientProtocol::Http1Tls);
            assert_eq!(again.is_err(), ends, "{protocol:?} {path}: {again:?}");
        }
        let mut connection = target.connect(protocol).await.expect("it listens");
        let answer = connection.ask("/panic/body").await;
        assert!(
            matches!(answer, Err(Failure::Lost(_))),
            "{protocol:?}: half a body is no answer: {answer:?}"
        );
        panics += 1;
    }
    for other in others {
        other.answers(10).await;
        other.end().await;
    }
    // Each is logged with its line, and counted.
    for (line, times) in
        [("GET /panic?a", 5), ("GET /panic/later", 5), ("GET /panic/body", 5), (" panicked", 15)]
    {
        logged(&server, line, times);
    }
    until("all are counted", || server.metrics().sum("panics_total") == f64::from(panics));
}

#[test]
fn a_worker_that_ends_takes_the_process_along() {
    // The only one, or the next might not have been started yet.
    let server = Server::start(&["--workers", "1"]);
    let ask = |path: &str| {
        let mut raw = Raw::connect(server.clear);
        let _ = raw.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes());
        raw.rest()
    };
    assert!(!ask("/die").is_empty());
    ask("/");
    assert_eq!(server.wait(PATIENCE).code(), Some(1));
    let text = server.log();
    assert!(text.contains("ERROR") && text.contains("a worker ended by itself"), "{text}");
}

#[test]
fn a_worker_that_hangs_stops_the_watchdogs_pings() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let path = path.to_str().expect("text");
    let variables = [("NOTIFY_SOCKET", path), ("WATCHDOG_USEC", "40000")];
    let server = Server::start_with(&variables, &["--workers", "2", "--stuck", "2000"]);
    let mut ping = [0; 64];
    for _ in 0..3 {
        let length = socket.recv(&mut ping).expect("a ping");
        assert_eq!(&ping[..length], b"WATCHDOG=1\n");
    }
    let mut waiting = Raw::connect(server.clear);
    waiting.send(b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n").expect("it listens");
    // A server that stands still for two seconds is stuck too, and pings afterwards.
    socket.set_nonblocking(true).expect("a socket");
    let complaints = || server.log().lines().filter(|line| line.contains("stuck")).count();
    let mut at_last_ping = 0;
    until("many complaints without a ping", || {
        // Pings that nobody reads would block the sender.
        while socket.recv(&mut ping).is_ok() {
            at_last_ping = complaints();
        }
        complaints() >= at_last_ping + 20
    });
}
