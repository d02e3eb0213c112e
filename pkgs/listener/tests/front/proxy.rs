//! Clients behind a proxy.

use listener::{Config, Endpoint, Limits};

use crate::server::Server;

const WHO: &str = "GET /who HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// A header that tells of a connection from 192.0.2.`last`:1000 to 198.51.100.2:80.
fn header(last: u8) -> Vec<u8> {
    let addresses = [192, 0, 2, last, 198, 51, 100, 2, 0x3, 0xe8, 0, 80];
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
}

fn start(trusted: &str, limits: Limits) -> Server {
    let proxies = vec![trusted.parse().expect("a network")];
    let endpoint = |address| Endpoint { proxies: proxies.clone(), ..Endpoint::plain(address) };
    Server::start(endpoint, Config { limits, ..Config::default() })
}

#[test]
fn a_trusted_proxy_tells_who_asks() {
    let server = start("127.0.0.0/8", Limits::default());
    let answer = server.connect().send(header(7)).send(WHO).text();
    assert!(answer.ends_with("Some(192.0.2.7:1000) Some(198.51.100.2:80)"), "{answer}");
    // From there, a header is not a matter of choice.
    assert_eq!(server.connect().send(WHO).text(), "");
    assert_eq!(server.metrics.sum(|worker| &worker.proxy_refused), 1);
}

#[test]
fn nobody_else_does() {
    let server = start("10.0.0.0/8", Limits::default());
    let answer = server.connect().send(header(7)).send(WHO).text();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut client = server.connect();
    let own = client.0.local_addr().expect("an address");
    let answer = client.send(WHO).text();
    assert!(answer.ends_with(&format!("Some({own}) Some({})", server.address)), "{answer}");
}

#[test]
fn clients_are_counted_by_the_address_that_is_told() {
    let limits = Limits { connections_per_address: 1, ..Limits::default() };
    let server = start("127.0.0.1/32", limits);
    let hold = |last| {
        let mut client = server.connect();
        client.send(header(last)).send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        client
    };
    let (mut first, mut second) = (hold(1), hold(2));
    assert_eq!((first.answer().0, second.answer().0), (200, 200));
    assert_eq!(hold(1).text(), "");
}
