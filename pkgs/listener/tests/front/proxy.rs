//! Clients behind a proxy.

use listener::{Config, Endpoint, Limits};
use service::proxies::{Proxies, ProxyArgs};

use crate::server::Server;

const WHO: &str = "GET /who HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// A header for a connection from 192.0.2.`last`:1000 to 198.51.100.2:80.
fn header(last: u8) -> Vec<u8> {
    let addresses = [192, 0, 2, last, 198, 51, 100, 2, 0x3, 0xe8, 0, 80];
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
}

/// A header by which a proxy says that the connection is its own.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

fn proxies(proxy_protocol: bool, trusted: &[&str]) -> Proxies {
    let trusted_proxies = trusted.iter().map(|text| text.parse().expect("a network")).collect();
    (&ProxyArgs { proxy_protocol, trusted_proxies }).into()
}

fn start(proxies: Proxies, limits: Limits) -> Server {
    Server::start(Endpoint::plain, Config { proxies, limits, ..Config::default() })
}

/// A request for the client's address, with these headers.
fn with(fields: &str) -> String {
    format!("GET /who HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n")
}

#[test]
fn a_proxy_tells_who_asks() {
    for trusted in [&[][..], &["127.0.0.0/8"]] {
        let server = start(proxies(true, trusted), Limits::default());
        let answer = server.connect().send(header(7)).send(WHO).text();
        assert!(answer.ends_with("Some(192.0.2.7:1000) Some(198.51.100.2:80) Some(192.0.2.7)"), "{answer}");
        // With a PROXY header, the fields of a request are ignored.
        let answer = server.connect().send(header(7)).send(with("X-Forwarded-For: 203.0.113.1\r\n")).text();
        assert!(answer.ends_with(" Some(192.0.2.7)"), "{answer}");
        // The proxy's own connections have its own address.
        let answer = server.connect().send(LOCAL).send(WHO).text();
        assert!(answer.ends_with(" Some(127.0.0.1)"), "{answer}");
        // A header is mandatory, and version 1 isn't accepted.
        assert_eq!(server.connect().send(WHO).text(), "");
        assert_eq!(
            server.connect().send("PROXY TCP4 192.0.2.7 198.51.100.2 1000 80\r\n").send(WHO).text(),
            ""
        );
        assert_eq!(server.metrics.sum(|worker| &worker.proxy_refused), 2);
    }
}

#[test]
fn nobody_else_does() {
    let server = start(proxies(true, &["10.0.0.0/8"]), Limits::default());
    assert_eq!(server.connect().send(header(7)).send(WHO).text(), "");
    assert_eq!(server.metrics.sum(|worker| &worker.proxy_refused), 1);
    let server = start(Proxies::default(), Limits::default());
    let answer = server.connect().send(header(7)).send(WHO).text();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn the_fields_of_a_trusted_proxy_tell_who_asks_and_those_of_others_do_not() {
    for (trusted, fields, client) in [
        ("127.0.0.0/8", "X-Forwarded-For: 203.0.113.1, 192.0.2.7, 127.0.0.9\r\n", "192.0.2.7"),
        ("127.0.0.0/8", "Forwarded: for=\"[2001:db8::7]:80\"\r\n", "2001:db8::7"),
        ("127.0.0.0/8", "", "127.0.0.1"),
        ("10.0.0.0/8", "X-Forwarded-For: 192.0.2.7\r\nForwarded: for=192.0.2.7\r\n", "127.0.0.1"),
    ] {
        let server = start(proxies(false, &[trusted]), Limits::default());
        let answer = server.connect().send(with(fields)).text();
        assert!(answer.ends_with(&format!(" Some({client})")), "{trusted} {fields:?}: {answer}");
    }
}

#[test]
fn clients_are_counted_by_the_address_that_is_told() {
    let limits = Limits { connections_per_address: 1, ..Limits::default() };
    let server = start(proxies(true, &["127.0.0.1"]), limits);
    let hold = |header: &[u8]| {
        let mut client = server.connect();
        client.send(header).send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        client
    };
    let mut held = [hold(&header(1)), hold(&header(2)), hold(LOCAL)];
    assert!(held.iter_mut().all(|client| client.answer().0 == 200));
    assert_eq!(hold(&header(1)).text(), "");
    assert_eq!(hold(LOCAL).text(), "");
}

#[test]
fn the_connections_of_a_proxy_are_those_of_many() {
    let limits = || Limits { connections_per_address: 1, ..Limits::default() };
    for (trusted, second) in [("127.0.0.1", true), ("10.0.0.0/8", false)] {
        let server = start(proxies(false, &[trusted]), limits());
        let mut first = server.connect();
        assert_eq!(first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").answer().0, 200);
        assert_eq!(!server.connect().send(WHO).text().is_empty(), second, "{trusted}");
    }
}
