//! What clients hold has a deadline and a total limit, on every kind of endpoint.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use listener::{Config, Endpoint, Limits};
use service::problem::Problem;
use service::socket::Address;

use crate::server::{Client, PATIENCE, Server};
use crate::tls::Certificate;

const SECOND: Duration = Duration::from_secs(1);

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn start(limits: Limits) -> Server {
    Server::start(Endpoint::plain, Config { limits, ..Config::default() })
}

/// Checks that a request is refused with this status, as a problem, and that nothing after it is answered.
fn is_refused(answer: &str, status: u16) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(head.contains("content-type: application/problem+json\r\n"), "{answer}");
    assert!(head.contains("connection: close\r\n"), "{answer}");
    assert!(head.contains("cache-control: no-store\r\n"), "{answer}");
    let problem: Problem = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert_eq!(problem.status, status);
}

/// Sends one byte at a time until `end`.
fn drip(client: &mut Client, bytes: &[u8], mut end: impl FnMut() -> bool) {
    let begun = Instant::now();
    for byte in bytes.iter().cycle() {
        assert!(begun.elapsed() < PATIENCE, "it is waited for");
        if end() {
            return;
        }
        client.send([*byte]);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_slow_head_is_408_on_every_endpoint() {
    let limits = || Limits { head_time: SECOND, handshake_time: 4 * SECOND, ..Limits::default() };
    let certificate = Certificate::new("localhost");
    // At the last endpoint, it is not known yet which protocol the client speaks.
    for (endpoint, head) in [
        (&Endpoint::plain as &dyn Fn(Address) -> Endpoint, "GET / HTTP/1.1\r\nHost: "),
        (&Endpoint::h2c, "GET / HTTP/1.1\r\nHost: "),
        (&Endpoint::h2c, "P"),
    ] {
        let server = Server::start(endpoint, Config { limits: limits(), ..Config::default() });
        let mut client = server.connect();
        client.send(head);
        is_refused(&client.text(), 408);
        let mut dripping = server.connect();
        dripping.send(head);
        let timed_out = || server.metrics.sum(|worker| &worker.timed_out) >= 2;
        drip(&mut dripping, if head == "P" { b"" } else { b"x" }, timed_out);
        is_refused(&dripping.text(), 408);
    }
    let limits = Limits { head_time: SECOND, ..Limits::default() };
    let config = Config { limits, tls: Some(certificate.config()), ..Config::default() };
    let server = Server::start(Endpoint::tls, config);
    let mut client = certificate.connect(server.address);
    client.send("GET / HTTP/1.1\r\nHost: ");
    is_refused(&client.text(), 408);
}

#[test]
fn what_follows_the_last_request_is_not_served() {
    let server = start(Limits::default());
    let closing = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let answer = server.connect().send(format!("{closing}{}", get("/who"))).text();
    assert!(
        answer.ends_with("\r\n\r\nHello, World!") && answer.matches("HTTP/1.1 ").count() == 1,
        "{answer}"
    );
    let expecting = "POST /read HTTP/1.1\r\nHost: h\r\nExpect: more\r\nContent-Length: 5\r\n\r\nhello";
    is_refused(&server.connect().send(format!("{expecting}{}", get("/"))).text(), 417);
}

#[test]
fn who_reads_a_drop_at_a_time_is_cut_on_private_listeners_too() {
    let mut config = Config::private("127.0.0.1:0".parse().expect("an address"));
    config.limits.write_stall = SECOND;
    let server = Server::run(config);
    let mut client = server.connect();
    client.send(get("/large"));
    let (mut byte, begun) = ([0], Instant::now());
    while server.metrics.sum(|worker| &worker.timed_out) == 0 {
        assert!(begun.elapsed() < PATIENCE, "it is waited for");
        // The kernel holds some of it, so that there is always something to read.
        client.0.read_exact(&mut byte).expect("more");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(client.rest().len() < 64 << 20);
}

#[test]
fn private_listeners_have_room_for_so_many_and_then_make_some() {
    let server = Server::run(Config::private("127.0.0.1:0".parse().expect("an address")));
    let mut held: Vec<_> = (0..256).map(|_| server.connect()).collect();
    assert_eq!(server.connect().send(get("/")).answer().0, 200);
    // Only the oldest connection has made room.
    assert_eq!(held[0].text(), "");
    let counted =
        [server.metrics.sum(|worker| &worker.timed_out), server.metrics.sum(|worker| &worker.shed_overall)];
    assert_eq!(counted, [1, 0]);
}

#[test]
fn bodies_under_way_have_a_sum() {
    let limits = Limits { body_bytes: 100_000, body_bytes_total: 150_000, ..Limits::default() };
    let server = Server::start(Endpoint::h2c, Config { limits, ..Config::default() });
    let head = |framing: &str| format!("POST /read HTTP/1.1\r\nHost: h\r\n{framing}\r\n");
    let large = head("Content-Length: 100000\r\nExpect: 100-continue\r\n");
    let mut first = server.connect();
    // The client was told to continue, so its body is counted.
    assert_eq!(first.send(&large).answer().0, 100);
    for framing in ["Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let answer = server.connect().send(head(framing)).text();
        is_refused(&answer, 503);
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    }
    let mut h2 = crate::http2::connect(&server);
    h2.send(crate::http2::post(100_000));
    h2.until(b"too many request bodies");
    assert_eq!(server.metrics.sum(|worker| &worker.shed_bodies), 3);
    // Little is held for a GET whose end arrives separately.
    let mut asking = crate::http2::connect(&server);
    asking.send(crate::http2::get_without_end());
    asking.send(crate::http2::end());
    asking.until(b"Hello, World!");
    // A small body has room, and so has one that arrives with its head.
    let mut other = server.connect();
    assert_eq!(other.send(head("Content-Length: 5\r\n") + "hello").answer(), (200, "5 bytes".into()));
    assert_eq!(other.send(head("Content-Length: 50000\r\n")).send([0; 50_000]).answer().0, 200);
    assert_eq!(first.send([0; 100_000]).answer(), (200, "100000 bytes".into()));
    assert_eq!(other.send(head("Content-Length: 100000\r\n")).send([0; 100_000]).answer().0, 200);
}

#[test]
fn answers_that_nobody_takes_have_a_sum() {
    let limits = Limits { answer_bytes_total: 100 << 10, write_stall: 10 * PATIENCE, ..Limits::default() };
    let server = start(limits);
    // There is room for one or two of them.
    let mut crowd: Vec<_> = (0..8).map(|_| (server.connect(), 0)).collect();
    for (client, _) in &crowd {
        client.0.set_nonblocking(true).expect("a socket");
    }
    let requests = get("/").repeat(1000);
    let begun = Instant::now();
    while server.metrics.sum(|worker| &worker.shed_answers) < 6 {
        assert!(begun.elapsed() < PATIENCE, "all of them are waited for");
        for (client, sent) in &mut crowd {
            *sent += client.0.write(&requests.as_bytes()[*sent % requests.len()..]).unwrap_or(0);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.connect().send(get("/")).answer().0, 200, "who takes an answer has one");
}

#[test]
fn a_body_that_drips_has_one_deadline() {
    let server = start(Limits { body_time: SECOND, ..Limits::default() });
    let mut client = server.connect();
    client.send("POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    client.0.set_nonblocking(true).expect("a socket");
    let reader = client.0.try_clone().expect("a descriptor");
    drip(&mut client, b"x", || {
        !reader.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    client.0.set_nonblocking(false).expect("a socket");
    assert_eq!(client.answer().1, "the request body took longer than 1s");
}

#[test]
fn who_takes_an_answer_late_and_then_sends_no_body_is_closed() {
    let server = start(Limits { head_time: SECOND, write_stall: PATIENCE, ..Limits::default() });
    // The small answers leave together, after the one to POST, when only its body is waited for. At one of these sizes,
    // the answer before them leaves no room in the socket.
    let late: Vec<_> = (1..32)
        .map(|size| {
            let mut client = server.connect();
            std::thread::spawn(move || {
                let small = get("/").repeat(200);
                let post = "POST /nothing HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n";
                client.send(get(&format!("/sized/{}", size * 16 * 1024)) + &small + post);
                // Only now does it take anything.
                std::thread::sleep(SECOND / 2);
                client.rest();
            })
        })
        .collect();
    late.into_iter().for_each(|client| client.join().expect("it is closed"));
}
