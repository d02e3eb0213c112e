//! links behind nginx and HAProxy: each client has its own password attempts. Runs the real binary.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::thread;

use bench::proxy::{self, Proxy, connect_from};
use http::Client;
use server::{Place, Server};
use testkit::until;

mod countries;

// These are shared with other tests, which use more of them.
#[allow(dead_code)]
#[path = "../http/mod.rs"]
mod http;
#[allow(dead_code)]
#[path = "../survive/server.rs"]
mod server;

const TRUSTED: [&str; 2] = ["--trusted-proxy", "127.0.0.1"];

/// nginx's additional directive.
const APPEND: &str = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;";

/// A server with a link that asks for a password.
fn serve(place: &Place, flags: &[&str]) -> Server {
    let server = place.serve(flags);
    let link = serde_json::json!({ "code": "abc", "target": "https://t.example/", "password": "right" });
    assert_eq!(server.api().add(&link).expect("an answer"), 201);
    server
}

/// Connects as a client at 127.0.0.`host`.
fn come(to: SocketAddr, host: u8) -> Client {
    Client::on(connect_from(Ipv4Addr::new(127, 0, 0, host), to).expect("it listens"))
}

/// The status for a password from a client at 127.0.0.`host`, which claims another address each time.
fn attempt(to: SocketAddr, host: u8, password: &str, number: u8) -> u16 {
    let fields = format!(
        "Content-Type: application/x-www-form-urlencoded\r\nX-Forwarded-For: 203.0.113.{number}\r\nConnection: close\r\n"
    );
    let answer = come(to, host).request("POST", "/abc", &fields, &format!("password={password}"));
    answer.expect("an answer").status
}

/// Asserts that one client has used up its attempts, and another hasn't.
fn assert_each_has_its_own(to: SocketAddr, host: u8) {
    // Attempts are counted per minute, and a busy machine may not manage six within one minute.
    let mut tries = (0..40).map(|number| attempt(to, host, "wrong", number));
    assert!(tries.by_ref().take(5).all(|status| status == 403), "five are its own");
    assert!(tries.any(|status| status == 429), "and no more");
    assert_eq!(attempt(to, host + 1, "right", 0), 303, "another client");
}

#[test]
fn each_client_behind_nginx_has_tries_of_its_own() {
    let place = Place::new();
    let server = serve(&place, &TRUSTED);
    let upstream = format!("http://{}", server.public);
    let Some(proxy) = Proxy::nginx("tries behind nginx", &upstream, APPEND) else { return };
    assert_each_has_its_own(proxy.address(), 7);
    // The header isn't trusted from a client that isn't a proxy.
    assert_each_has_its_own(server.public, 11);
}

#[test]
fn each_client_behind_haproxy_has_tries_of_its_own() {
    let (extended, line) = proxy::EXTENDED;
    for (flags, options, lines) in [
        (&TRUSTED[..], "", "mode http\n option forwardfor"),
        (&[&TRUSTED[..], &["--proxy-protocol"]].concat(), "send-proxy-v2", "mode http"),
        (&["--proxy-protocol"], "send-proxy-v2", "mode tcp"),
        (&["--proxy-protocol"], extended, &format!("mode tcp\n {line}")),
        (&[&TRUSTED[..], &["--proxy-protocol"]].concat(), extended, &format!("mode http\n {line}")),
        (&[&TRUSTED[..], &["--h2c"]].concat(), "proto h2", "mode http\n option forwardfor"),
        (&[&TRUSTED[..], &["--proxy-protocol", "--h2c"]].concat(), "send-proxy-v2 proto h2", "mode http"),
    ] {
        let place = Place::new();
        let server = serve(&place, flags);
        let line = format!("{} {options}", server.public);
        let Some(proxy) = Proxy::haproxy("tries behind HAProxy", &line, lines) else { return };
        assert_each_has_its_own(proxy.address(), 7);
    }
}

/// The version and the status that curl reports for a path that doesn't exist; `None` if curl fails.
fn curl(server: &Server, version: &str) -> Option<String> {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--max-time",
            "60",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_version} %{http_code}",
        ])
        .args([version, &format!("http://{}/none", server.public)])
        .output()
        .expect("curl runs");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn http2_is_spoken_in_the_clear_where_it_is_asked_for() {
    let place = Place::new();
    // The NixOS module passes on settings without a type in this way.
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("links.toml");
    fs::write(&config, "h2c = true\n").expect("written");
    let server = place.serve(&["--config", &config.display().to_string()]);
    for (version, told) in [("--http2-prior-knowledge", "2 404"), ("--http1.1", "1.1 404")] {
        assert_eq!(curl(&server, version).as_deref(), Some(told), "{version}");
    }
    // The server does not ask a client to upgrade to HTTP/2 (RFC 9113, section 3.1).
    assert_eq!(curl(&server, "--http2").as_deref(), Some("1.1 404"));
    let place = Place::new();
    let server = place.serve(&[]);
    assert_eq!(curl(&server, "--http2-prior-knowledge"), None, "not unless asked for");
    assert_eq!(curl(&server, "--http1.1").as_deref(), Some("1.1 404"));
}

#[test]
fn each_client_of_the_tls_listener_behind_nginx_has_tries_of_its_own() {
    let place = Place::new();
    let directory = tempfile::tempdir().expect("a directory");
    let [cert, key] = testkit::certificate(&["localhost"]).write_in(directory.path());
    let tls = ["--tls-listen", "127.0.0.1:0", "--cert", &cert, "--key", &key];
    let server = serve(&place, &[&TRUSTED[..], &tls].concat());
    let upstream = format!("https://{}", server.secure.expect("a TLS listener"));
    let Some(proxy) = Proxy::nginx("tries by TLS behind nginx", &upstream, APPEND) else { return };
    assert_each_has_its_own(proxy.address(), 7);
}

#[test]
fn what_else_a_proxy_tells_is_ignored() {
    let (place, directory) = (Place::new(), tempfile::tempdir().expect("a directory"));
    let log = directory.path().join("log");
    let server = serve(&place, &["--proxy-protocol", "--access-log", log.to_str().expect("text")]);
    for (number, more) in (0..).zip(proxy::extensions()) {
        let (who, path) = (Ipv4Addr::new(192, 0, 2, number), format!("extended-{number}"));
        let mut client = come(server.public, 1);
        client.send(proxy::header(who, &more)).expect("it reads");
        assert_eq!(client.get(&path).expect("an answer").status, 404, "{number}");
        let path = format!("/{path}");
        until("a line of the access log", || proxy::logged_client(&log, &path) == Some(who.to_string()));
    }
}

/// The lines that make HAProxy pass on more than addresses have this effect.
#[test]
fn haproxy_tells_more_than_addresses_where_it_is_asked_to() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (extended, line) = proxy::EXTENDED;
    let server = format!("{} {extended}", listener.local_addr().expect("an address"));
    let headers = thread::spawn(move || {
        // HAProxy's health check at its start needs an answer.
        let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        listener.incoming().find_map(|stream| {
            let (mut stream, mut fixed) = (stream.expect("a connection"), [0; 16]);
            stream.read_exact(&mut fixed).ok()?;
            let mut rest = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
            stream.read_exact(&mut rest).ok()?;
            let _ = stream.write_all(answer);
            rest.starts_with(&[127, 0, 0, 7]).then(|| rest.split_off(12))
        })
    });
    let lines = format!("mode tcp\n {line}");
    let Some(proxy) = Proxy::haproxy("what HAProxy tells", &server, &lines) else { return };
    let _client = come(proxy.address(), 7);
    let mut more = &headers.join().expect("no panic").expect("a header")[..];
    let mut kinds = Vec::new();
    while let [kind, high, low, rest @ ..] = more {
        kinds.push(*kind);
        more = &rest[usize::from(u16::from_be_bytes([*high, *low]))..];
    }
    kinds.sort_unstable();
    // A checksum, an id, and HAProxy's knowledge about TLS.
    assert_eq!(kinds, [0x03, 0x05, 0x20]);
}

#[test]
fn who_comes_past_the_proxy_is_not_served() {
    let place = Place::new();
    let server = serve(&place, &[&TRUSTED[..], &["--proxy-protocol"]].concat());
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\x7f\0\0\x01\x03\xe8\0\x50";
    let old = b"PROXY TCP4 203.0.113.9 127.0.0.1 1000 80\r\n";
    for (host, sent, served) in [(1, &header[..], true), (9, header, false), (1, b"", false), (1, old, false)]
    {
        let mut client = come(server.public, host);
        // The connection may be closed before everything is sent.
        let _ = client.send([sent, b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n"].concat());
        assert_eq!(client.receive().is_ok(), served, "from {host}: {}", sent.escape_ascii());
    }
    // Operators connect directly.
    let mut operator = Client::connect(server.admin).expect("it listens");
    operator.send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    assert_eq!(operator.receive().expect("an answer").status, 200);
    // The server does not wait forever for a header that never ends.
    let place = Place::new();
    let server = serve(&place, &["--proxy-protocol", "--head-timeout", "3"]);
    let mut client = come(server.public, 1);
    client.send(&header[..20]).expect("sent");
    assert!(client.is_closed());
}
