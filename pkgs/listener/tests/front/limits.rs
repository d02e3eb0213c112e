//! Limits on connections.

use std::io::Write;
use std::num::NonZero;
use std::time::{Duration, Instant};

use listener::{Config, Endpoint, Limits};

use crate::http2::{self, END_HEADERS, END_STREAM, HEADERS, PING, frame};
use crate::server::Server;

const CLOSING: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn connections_beyond_a_limit_are_closed_at_once_and_counted() {
    for (limits, overall) in [
        (Limits { connections: 2, ..Limits::default() }, true),
        (Limits { connections_per_address: 2, ..Limits::default() }, false),
    ] {
        let server = Server::start(Endpoint::plain, Config { limits, ..Config::default() });
        let mut held = [server.connect(), server.connect()];
        for client in &mut held {
            assert_eq!(client.send(GET).answer().0, 200);
        }
        assert_eq!(server.connect().send(GET).text(), "");
        let counted = if overall {
            server.metrics.sum(|worker| &worker.shed_overall)
        } else {
            server.metrics.sum(|worker| &worker.shed_address)
        };
        assert_eq!(counted, 1);
        drop(held);
        // There is room again as soon as their end is noticed.
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.connect().send(CLOSING).text().is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn those_who_stand_still_make_room_where_they_are_to() {
    const PLACES: usize = 4;
    // One worker: each makes room among its own.
    let server = Server::run(Config {
        endpoints: vec![Endpoint::plain("127.0.0.1:0".parse().expect("an address"))],
        workers: NonZero::new(1),
        limits: Limits { connections: PLACES, make_room: true, ..Limits::default() },
        ..Config::default()
    });
    let never_read = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3);
    let unfinished = "HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx";
    // The service answers the one at once, and collects the body of the other first.
    let (answered, collected) = (format!("POST / {unfinished}"), format!("POST /read {unfinished}"));
    for begin in ["", "GET / HT", GET, &answered, &collected, &never_read] {
        let crowd: Vec<_> = (0..3 * PLACES)
            .map(|_| {
                let mut client = server.connect();
                client.0.write_all(begin.as_bytes()).expect("it is let in");
                client
            })
            .collect();
        for _ in 0..3 {
            assert_eq!(server.connect().send(GET).answer().0, 200, "beside {begin:?}");
        }
        drop(crowd);
    }
    assert_eq!(server.metrics.sum(|worker| &worker.shed_overall), 0);
}

#[test]
fn what_is_served_over_http2_makes_no_room_until_its_client_is_waited_for() {
    let server = Server::run(Config {
        endpoints: vec![Endpoint::h2c("127.0.0.1:0".parse().expect("an address"))],
        workers: NonZero::new(1),
        limits: Limits { connections: 2, make_room: true, ..Limits::default() },
        ..Config::default()
    });
    // When the ping is answered, the service has the request.
    let ask = |request: Vec<u8>| {
        let mut client = http2::connect(&server);
        client.send([request, frame(PING, 0, 0, b"answered")].concat()).until(b"answered");
        client
    };
    let mut served = ask(frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x82\x86\x04\x05/slow\x41\x01h"));
    let mut idle = [(); 3].map(|()| server.connect());
    assert!(idle[0].rest().is_empty(), "it makes room instead");
    served.until(b"slow");
    let _stalled = [(); 3].map(|()| ask(http2::post(9)));
    assert_eq!(server.connect().send(GET).answer().0, 200);
    assert_eq!(server.metrics.sum(|worker| &worker.shed_overall), 0);
}
