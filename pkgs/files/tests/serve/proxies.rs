//! Behind nginx and HAProxy: which client a request comes from, and that nobody else can claim it.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use bench::proxy::{self, Proxy, connect_from};

use crate::client::{Answer, Client};
use crate::place::{Place, Server, until};
use crate::secure::secure;

/// How a proxy passes on its clients' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    NginxXForwardedFor,
    NginxForwarded,
    HaproxyXForwardedFor,
    HaproxyProxyProtocol,
    /// With more than addresses.
    HaproxyExtended,
}

const ALL: [By; 5] = [
    By::NginxXForwardedFor,
    By::NginxForwarded,
    By::HaproxyXForwardedFor,
    By::HaproxyProxyProtocol,
    By::HaproxyExtended,
];

/// What a client wants others to take it for.
const SPOOFED: &str = "X-Forwarded-For: 203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\n";

impl By {
    /// The proxy in front of a server.
    fn start(self, test: &str, server: SocketAddr) -> Option<Proxy> {
        let upstream = format!("http://{server}");
        match self {
            Self::NginxXForwardedFor => {
                let append = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;";
                Proxy::nginx(test, &upstream, append)
            }
            Self::NginxForwarded => {
                let append = "proxy_set_header Forwarded \"for=203.0.113.8, for=$remote_addr;proto=http\"; \
                              proxy_set_header X-Forwarded-For \"\";";
                Proxy::nginx(test, &upstream, append)
            }
            Self::HaproxyXForwardedFor => {
                Proxy::haproxy(test, &server.to_string(), "mode http\n option forwardfor")
            }
            Self::HaproxyProxyProtocol => {
                Proxy::haproxy(test, &format!("{server} send-proxy-v2"), "mode http")
            }
            Self::HaproxyExtended => {
                let (options, line) = proxy::EXTENDED;
                Proxy::haproxy(test, &format!("{server} {options}"), &format!("mode http\n {line}"))
            }
        }
    }

    /// Whether it passes them on before any request.
    fn by_header(self) -> bool {
        matches!(self, Self::HaproxyProxyProtocol | Self::HaproxyExtended)
    }

    /// The server's flags: that the proxy is at 127.0.0.1, and how it passes on addresses.
    fn flags(self) -> Vec<&'static str> {
        let mut flags = vec!["--trusted-proxy", "127.0.0.1", "--admin", "127.0.0.1:0"];
        flags.extend(self.by_header().then_some("--proxy-protocol"));
        flags
    }
}

/// The answer to a client at 127.0.0.`host`.
fn get(to: SocketAddr, host: u8, target: &str, fields: &str) -> Answer {
    Client::on(connect_from(Ipv4Addr::new(127, 0, 0, host), to).expect("it listens")).get(target, fields)
}

/// The address that the access log has for a path; waits until it has one.
fn logged(place: &Place, path: &str) -> String {
    let mut found = None;
    until("a line of the access log", || {
        found = proxy::logged_client(&place.beside("log"), path);
        found.is_some()
    });
    found.expect("waited for")
}

fn with_log(place: &Place, flags: &[&str]) -> Vec<String> {
    let log = place.beside("log").display().to_string();
    ["--access-log", &log].into_iter().chain(flags.iter().copied()).map(str::to_owned).collect()
}

fn serve(place: &Place, flags: &[&str]) -> Server {
    place.file("a", "a");
    place.serve(&with_log(place, flags).iter().map(String::as_str).collect::<Vec<_>>())
}

const REFUSED: &str = "linerate_files_listener_shed_total{reason=\"proxy\"}";

#[test]
fn the_access_log_has_the_client_behind_a_proxy_and_not_who_it_says_it_is() {
    for by in ALL {
        let place = Place::new();
        let server = serve(&place, &by.flags());
        let Some(proxy) = by.start("the access log behind a proxy", server.address()) else { continue };
        assert_eq!(get(proxy.address(), 7, "/a?proxied", "").status, 200, "{by:?}");
        assert_eq!(logged(&place, "/a"), "127.0.0.7", "{by:?}");
        assert_eq!(get(proxy.address(), 8, "/spoofed", SPOOFED).status, 404, "{by:?}");
        assert_eq!(logged(&place, "/spoofed"), "127.0.0.8", "{by:?}");
        // Without the proxy.
        if by.by_header() {
            let from =
                |host| connect_from(Ipv4Addr::new(127, 0, 0, host), server.address()).expect("it listens");
            let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\x7f\0\0\x01\x03\xe8\0\x50";
            let before = server.metric(REFUSED);
            for (host, sent) in
                [(9, &header[..]), (1, b""), (1, b"PROXY TCP4 203.0.113.9 127.0.0.1 1000 80\r\n")]
            {
                let mut stream = from(host);
                // It may be closed before everything is sent.
                let _ = stream.write_all(&[sent, b"GET /past HTTP/1.1\r\nHost: h\r\n\r\n"].concat());
                assert!(Client::on(stream).receive(true).is_err(), "from {host}: {}", sent.escape_ascii());
            }
            until("three refusals are counted", || server.metric(REFUSED) - before >= 3.0);
            assert!(!fs::read_to_string(place.beside("log")).expect("a log").contains("/past"));
        } else {
            let forwarded = "Forwarded: for=203.0.113.9\r\n";
            assert_eq!(get(server.address(), 9, "/past", SPOOFED).status, 404, "{by:?}");
            assert_eq!(logged(&place, "/past"), "127.0.0.9", "{by:?}");
            assert_eq!(get(server.address(), 9, "/past2", forwarded).status, 404, "{by:?}");
            assert_eq!(logged(&place, "/past2"), "127.0.0.9", "{by:?}");
        }
    }
}

#[test]
fn each_client_behind_a_proxy_has_limits_of_its_own() {
    for by in ALL {
        let place = Place::new();
        let limits = ["--address-rate", "1", "--address-burst", "2", "--address-connections", "20"];
        let server = serve(&place, &[&limits[..], &by.flags()].concat());
        let Some(proxy) = by.start("limits of clients behind a proxy", server.address()) else { continue };
        until("a client has asked too often", || get(proxy.address(), 7, "/a", "").status == 429);
        assert_eq!(get(proxy.address(), 8, "/a", "").status, 200, "{by:?}: another client");
        // A client has its own limit, whoever it claims to be.
        let mut spoofed = 0;
        until("one who spoofs has asked too often", || {
            spoofed += 1;
            let fields = format!("X-Forwarded-For: 203.0.113.{}\r\n", spoofed % 250);
            get(proxy.address(), 9, "/a", &fields).status == 429
        });
    }
}

#[test]
fn a_proxys_connections_are_not_one_clients() {
    let place = Place::new();
    let trusted = ["--trusted-proxy", "127.0.0.0/8", "--address-connections", "1"];
    let server = serve(&place, &trusted);
    let mut clients = [server.connect(), server.connect(), server.connect()];
    assert!(
        clients.iter_mut().all(|client| client.get("/a", "X-Forwarded-For: 192.0.2.1\r\n").status == 200)
    );
    // With a PROXY header, they count for the client that it names.
    let server = serve(&place, &[&trusted[..], &["--proxy-protocol"]].concat());
    let come = |last| {
        let mut client = server.connect();
        client.send(proxy::header(Ipv4Addr::new(192, 0, 2, last), &[]));
        client
    };
    let (mut first, mut second) = (come(1), come(2));
    assert_eq!((first.get("/a", "").status, second.get("/a", "").status), (200, 200));
    assert!(come(1).is_closed());
    assert_eq!(first.get("/a", "").status, 200, "and goes on");
}

#[test]
fn what_else_a_proxy_tells_is_ignored() {
    let place = Place::new();
    let server = serve(&place, &["--proxy-protocol"]);
    for (number, more) in (0..).zip(proxy::extensions()) {
        let (who, path) = (Ipv4Addr::new(192, 0, 2, number), format!("/extended-{number}"));
        let mut client = server.connect();
        client.send(proxy::header(who, &more));
        assert_eq!(client.get(&path, "").status, 404, "{number}");
        assert_eq!(logged(&place, &path), who.to_string(), "{number}");
    }
}

#[test]
fn a_proxy_header_comes_in_pieces_and_with_a_request_behind_it() {
    let place = Place::new();
    let server = serve(&place, &["--proxy-protocol"]);
    let header = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x28"[..], &[0x20; 36], &[4, 0, 1, 9]].concat();
    let mut client = server.connect();
    for piece in header.chunks(7) {
        client.send(piece);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(client.get("/pieces", "").status, 404);
    assert_eq!(logged(&place, "/pieces"), "2020:2020:2020:2020:2020:2020:2020:2020");
    let mut client = server.connect();
    let pipeline =
        [b"GET /one HTTP/1.1\r\nHost: h\r\n\r\n", &b"GET /two HTTP/1.1\r\nHost: h\r\n\r\n"[..]].concat();
    client.send([header, pipeline].concat());
    assert_eq!(
        (client.receive(true).expect("one").status, client.receive(true).expect("two").status),
        (404, 404)
    );
    assert_eq!(logged(&place, "/two"), "2020:2020:2020:2020:2020:2020:2020:2020");
}

#[test]
fn clients_of_tls_are_known_behind_a_proxy_too() {
    for (flag, version) in [("--http1.1", "http1"), ("--http2", "http2")] {
        let place = Place::new();
        let flags = with_log(&place, &["--proxy-protocol", "--trusted-proxy", "127.0.0.1"]);
        let server = secure(&place, &flags.iter().map(String::as_str).collect::<Vec<_>>());
        let secure = server.secure.expect("a TLS listener");
        let line = format!("{secure} send-proxy-v2");
        // Encrypted all the way through; what checks whether the proxy is ready doesn't understand the answer.
        let Some(proxy) = Proxy::haproxy("TLS behind a proxy", &line, "mode tcp") else { return };
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--insecure",
            "--include",
            "--max-time",
            "60",
            "--interface",
            "127.0.0.7",
            flag,
        ]);
        let output = curl
            .arg(format!("https://127.0.0.1:{}/tls", proxy.address().port()))
            .output()
            .expect("curl runs");
        let answer = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
        assert!(answer.contains(" 404"), "{version}: {answer} {}", String::from_utf8_lossy(&output.stderr));
        // With UDP, clients would bypass the proxy.
        assert!(!answer.contains("alt-svc"), "{version}: {answer}");
        assert_eq!(logged(&place, "/tls"), "127.0.0.7", "{version}");
    }
}
