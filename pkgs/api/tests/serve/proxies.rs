//! Behind nginx and HAProxy: limits per address apply to each client, whoever it claims to be.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use bench::proxy::{self, Proxy, connect_from};
use testkit::until;

use crate::client::{Answer, Client};
use crate::place::Place;

/// The lowest rate, so that the third request within a second is refused.
const RATE: [&str; 4] = ["--address-rate", "1", "--address-burst", "2"];

/// The host name in clients' requests, which proxies pass on.
const TRUSTED: [&str; 4] = ["--allowed-host", "h", "--trusted-proxy", "127.0.0.1"];

/// The answer to a client at 127.0.0.`host`.
fn get(to: SocketAddr, host: u8, fields: &str) -> Answer {
    let stream = connect_from(Ipv4Addr::new(127, 0, 0, host), to).expect("it listens");
    Client::on(stream).get("/v1/users", fields)
}

/// Sends requests until the rate limit refuses one, each with another claimed address. Then sends one from another
/// address.
fn assert_limited(to: SocketAddr, host: u8) {
    let mut asked = 0;
    let mut refused = None;
    until("a client has asked too often", || {
        asked += 1;
        let fields = format!("X-Forwarded-For: 203.0.113.{}\r\n", asked % 250);
        refused = Some(get(to, host, &fields)).filter(|answer| answer.status == 429);
        refused.is_some()
    });
    let refused = refused.expect("waited for");
    assert_eq!(refused.field("retry-after").as_deref(), Some("1"), "{}", refused.text());
    assert!(refused.text().contains("\"status\":429"), "{}", refused.text());
    assert_eq!(get(to, host + 1, "").status, 200, "another client");
}

#[test]
fn each_client_behind_nginx_has_a_rate_of_its_own() {
    let place = Place::new();
    let server = place.serve(&[&RATE[..], &TRUSTED].concat());
    let append = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;";
    let upstream = format!("http://{}", server.public);
    let Some(proxy) = Proxy::nginx("rates behind nginx", &upstream, append) else { return };
    assert_limited(proxy.address(), 7);
    // The header isn't believed from a client that isn't a proxy.
    assert_limited(server.public, 11);
}

#[test]
fn each_client_behind_haproxy_has_a_rate_of_its_own() {
    let place = Place::new();
    let by_fields = place.serve(&[&RATE[..], &TRUSTED].concat());
    let by_header = place.serve(&[&RATE[..], &TRUSTED, &["--proxy-protocol"]].concat());
    let by_http2 = place.serve(&[&RATE[..], &TRUSTED, &["--h2c"]].concat());
    for (server, options, lines) in [
        (&by_fields, "", "mode http\n option forwardfor"),
        (
            &by_fields,
            "",
            "mode http\n http-request add-header Forwarded for=%[src]\n http-request del-header X-Forwarded-For",
        ),
        (&by_header, "send-proxy-v2", "mode http"),
        (&by_header, proxy::EXTENDED.0, &format!("mode http\n {}", proxy::EXTENDED.1)),
        (&by_http2, "proto h2", "mode http\n option forwardfor"),
    ] {
        let line = format!("{} {options}", server.public);
        let Some(proxy) = Proxy::haproxy("rates behind HAProxy", &line, lines) else { return };
        assert_limited(proxy.address(), 7);
    }
    assert!(by_http2.metric("linerate_api_listener_accepted_total{protocol=\"http2\"}") >= 1.0);
    // A client that does not come through the proxy is not served, with a PROXY header or without.
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\x7f\0\0\x01\x03\xe8\0\x50";
    let old = b"PROXY TCP4 203.0.113.9 127.0.0.1 1000 80\r\n";
    for (host, sent) in [(9, &header[..]), (1, b""), (1, old)] {
        let mut stream = connect_from(Ipv4Addr::new(127, 0, 0, host), by_header.public).expect("it listens");
        // It may be closed before everything is sent.
        let _ = stream.write_all(&[sent, b"GET /v1/users HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
        assert!(Client::on(stream).receive(true).is_err(), "from {host}");
    }
}

#[test]
fn http2_is_spoken_in_the_clear_where_it_is_asked_for() {
    let place = Place::new();
    let server = place.serve(&["--h2c"]);
    for (version, told) in [("--http2-prior-knowledge", "2 200"), ("--http1.1", "1.1 200")] {
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "60", "--output", "/dev/null", "--write-out"])
            .args(["%{http_version} %{http_code}", version, &format!("http://{}/v1/users", server.public)])
            .output()
            .expect("curl runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), told, "{version}");
    }
}

#[test]
fn connections_are_limited_by_the_client_that_a_proxy_tells() {
    let place = Place::new();
    let server = place.serve(&["--allowed-host", "h", "--proxy-protocol", "--address-connections", "1"]);
    let come = |last| {
        let mut client = server.connect();
        client.send(proxy::header(Ipv4Addr::new(192, 0, 2, last), &[]));
        client
    };
    let (mut first, mut second) = (come(1), come(2));
    let get = |client: &mut Client| client.get("/v1/users", "").status;
    assert_eq!((get(&mut first), get(&mut second)), (200, 200));
    assert!(come(1).is_closed());
    assert_eq!(get(&mut first), 200, "and goes on");
}

#[test]
fn what_else_a_proxy_tells_is_ignored() {
    let (place, directory) = (Place::new(), tempfile::tempdir().expect("a directory"));
    let log = directory.path().join("log");
    let flags = ["--allowed-host", "h", "--proxy-protocol", "--access-log", log.to_str().expect("text")];
    let server = place.serve(&flags);
    for (number, more) in (0..).zip(proxy::extensions()) {
        let (who, path) = (Ipv4Addr::new(192, 0, 2, number), format!("/extended-{number}"));
        let mut client = server.connect();
        client.send(proxy::header(who, &more));
        assert_eq!(client.get(&path, "").status, 404, "{number}");
        until("a line of the access log", || proxy::logged_client(&log, &path) == Some(who.to_string()));
    }
}

#[test]
fn what_is_no_network_is_told_on_one_line() {
    let place = Place::new();
    for (network, why) in
        [("10.0.0.1/8", "the network is 10.0.0.0/8"), ("proxy.example", "expected a network")]
    {
        let (code, said) = place.refused(&["--trusted-proxy", network]);
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
