//! HTTP/1.1, byte by byte.

use std::io::{Read, Write};
use std::num::NonZero;
use std::time::{Duration, Instant};

use listener::{Config, Endpoint, Limits};

use crate::server::{PATIENCE, Server};

fn start() -> Server {
    Server::start(Endpoint::plain, Config::default())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

#[test]
fn requests_of_a_pipeline_are_answered_in_order() {
    let server = start();
    let mut client = server.connect();
    client.send(["/", "/none", "/slow", "/"].map(get).concat());
    for (status, body) in
        [(200, "Hello, World!"), (404, "no such thing"), (200, "slow"), (200, "Hello, World!")]
    {
        assert_eq!(client.answer(), (status, body.into()));
    }
    let long = get("/").repeat(2000);
    let sender = std::thread::spawn({
        let mut client = crate::server::Client(client.0.try_clone().expect("a clone"));
        move || {
            client.send(long);
        }
    });
    for n in 0..2000 {
        assert_eq!(client.answer().0, 200, "{n}");
    }
    sender.join().expect("no panic");
}

#[test]
fn a_request_may_come_in_any_pieces() {
    let server = start();
    let request =
        "POST /read HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\n\r\n";
    for step in [1, 7, 64] {
        let mut client = server.connect();
        for piece in request.as_bytes().chunks(step) {
            client.send(piece);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(client.answer(), (200, "5 bytes".into()), "by {step}");
        assert_eq!(client.send(get("/")).answer().0, 200, "the connection is kept");
    }
}

#[test]
fn bodies_nobody_reads_do_not_become_requests() {
    let server = start();
    let smuggled = get("/none");
    let mut client = server.connect();
    client
        .send(format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{smuggled}", smuggled.len()));
    client.send(get("/"));
    assert_eq!((client.answer().0, client.answer().0), (200, 200));
    let chunk = format!("{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
    client
        .send(format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{}", get("/")));
    assert_eq!((client.answer().0, client.answer().0), (200, 200));
    // This is too much to read in vain, so the connection is closed after the answer.
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    assert!(client.text().contains("\r\nconnection: close\r\n"));
    // If a chunk is incomplete, nobody knows how much more will come.
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\nx");
    assert!(client.text().contains("\r\nconnection: close\r\n"));
}

#[test]
fn what_cannot_be_read_is_refused_and_the_connection_closed() {
    let server = start();
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: h\n\n", 400),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", 417),
        ("GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505),
    ] {
        let mut client = server.connect();
        let answer = client.send(request).send(get("/")).text();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        assert!(
            answer.contains("application/problem+json") && answer.contains("connection: close"),
            "{answer}"
        );
        assert!(!answer.contains("HTTP/1.1 2"), "nothing behind it is answered: {answer}");
    }
}

#[test]
fn a_refusal_of_head_has_no_body() {
    let server = start();
    for request in [
        "HEAD / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n",
        "HEAD / HTTP/1.1\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n",
    ] {
        let answer = server.connect().send(request).text();
        let length = answer.lines().find_map(|line| line.strip_prefix("content-length: "));
        assert!(length.is_some_and(|length| length != "0"), "{request:?}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{request:?}: {answer}");
    }
}

#[test]
fn a_malformed_body_ends_the_connection() {
    let server = start();
    let head = "POST /read HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = server.connect().send(format!("{head}5\r\nhelloo\r\n0\r\n\r\n{}", get("/"))).text();
    assert!(answer.contains("malformed") && answer.contains("connection: close"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[test]
fn no_reset_takes_a_last_answer_back() {
    let server = start();
    for fields in ["", "Connection: close\r\n"] {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: 1000000\r\n\r\n");
        let mut client = server.connect();
        client.send(head).send([b'x'; 100_000]);
        // A socket that is closed with unread data is reset.
        let mut answer = String::new();
        client.0.read_to_string(&mut answer).expect("an end, not a reset");
        assert!(answer.ends_with("\r\n\r\nHello, World!"), "{answer}");
        client.0.write_all(&[b'x'; 1000]).expect("it is heard out");
    }
    // Bytes after the last request do not cause a reset either.
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned() + &get("/").repeat(20));
    let mut answer = String::new();
    client.0.read_to_string(&mut answer).expect("an end, not a reset");
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1, "{answer}");
}

#[test]
fn a_client_that_waits_for_100_gets_it_when_the_body_is_read() {
    let server = start();
    let head = |path| {
        format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    };
    let mut client = server.connect();
    assert_eq!(client.send(head("/read")).answer().0, 100);
    assert_eq!(client.send("hello").answer(), (200, "5 bytes".into()));
    // The service does not read the body, so nobody asks for it, and it may or may not arrive.
    let answer = server.connect().send(head("/")).text();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close"), "{answer}");
}

#[test]
fn old_clients_are_answered_in_their_way() {
    let server = start();
    let answer = server.connect().send("GET / HTTP/1.0\r\n\r\n").text();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nHello, World!"),
        "{answer}"
    );
    let mut client = server.connect();
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.answer().0, 200);
    }
    // A body of unknown length ends with the connection.
    let chunked = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let mut client = server.connect();
    let answer = client.send(chunked).send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").text();
    assert!(answer.contains("\r\n\r\n2\r\nhi\r\n0\r\n\r\nHTTP/1.1 200 OK"), "{answer}");
}

#[test]
fn idle_and_paused_clients_are_let_go() {
    let second = Duration::from_secs(1);
    let start = |limits| Server::start(Endpoint::plain, Config { limits, ..Config::default() });
    let server = start(Limits { idle: second, handshake_time: second, ..Limits::default() });
    // Before a request, and after one, unless this machine was too busy to send it in time.
    assert_eq!(server.connect().text(), "");
    while !server.connect().send(get("/")).text().starts_with("HTTP/1.1 200 ") {}
    assert!(server.metrics.sum(|worker| &worker.timed_out) >= 2);
    let server = start(Limits { body_idle: second, ..Limits::default() });
    let mut paused = server.connect();
    paused.send("POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel");
    let answer = paused.text();
    assert!(answer.contains("paused") && answer.contains("connection: close\r\n"), "{answer:?}");
    // A new client doesn't get the time of a known one.
    let server = start(Limits { idle: 2 * PATIENCE, handshake_time: second, ..Limits::default() });
    let mut known = loop {
        let mut client = server.connect();
        client.send(get("/"));
        if client.0.peek(&mut [0]).is_ok_and(|count| count > 0) {
            break client;
        }
    };
    assert_eq!(known.answer().0, 200);
    assert_eq!(server.connect().text(), "");
    assert_eq!(known.send(get("/")).answer().0, 200);
}

#[test]
fn a_client_that_takes_nothing_is_let_go() {
    let limits = Limits { write_stall: Duration::from_secs(1), ..Limits::default() };
    let server = Server::start(Endpoint::plain, Config { limits, ..Config::default() });
    let mut client = server.connect();
    client.send(get("/large"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.metrics.sum(|worker| &worker.timed_out) == 0 {
        assert!(Instant::now() < deadline, "it is waited for");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(client.rest().len() < 64 << 20);
}

#[test]
fn requests_in_flight_are_answered_while_draining() {
    let endpoints = vec![Endpoint::plain("127.0.0.1:0".parse().expect("an address"))];
    // One, so that what one connection shows holds for the other.
    let workers = NonZero::new(1);
    let config = Config { endpoints, workers, drain: PATIENCE, drain_grace: PATIENCE, ..Config::default() };
    let server = Server::run(config);
    let (mut busy, mut idle) = (server.connect(), server.connect());
    assert_eq!(idle.send(get("/")).answer().0, 200);
    // It is in progress once it is told to continue.
    let post = "POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(busy.send(post).answer().0, 100);
    server.stop();
    // As if it was in transit when draining started; earlier requests are answered as usual.
    while !idle.send(get("/")).head().contains("connection: close") {}
    assert_eq!(idle.text(), "");
    let answer = busy.send("hello").text();
    assert!(answer.ends_with("5 bytes") && answer.contains("connection: close"), "{answer}");
    server.wait();
}
