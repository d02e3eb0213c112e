//! Bounds on connections.

use std::time::{Duration, Instant};

use listener::{Config, Endpoint, Limits};

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
        // Room again, as soon as their end is seen.
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.connect().send(CLOSING).text().is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
