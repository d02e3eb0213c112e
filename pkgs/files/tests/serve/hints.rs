//! What pages need besides themselves: interim responses over HTTP/2 and HTTP/3, and headers in all versions.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{Request, Response};
use quinn::crypto::rustls::QuicClientConfig;

use crate::auth::hash;
use crate::crowd::config;
use crate::place::{Place, Server};
use crate::secure::secure;
use crate::versions::{self, ALL};

const LINKS: [&str; 2] = ["</style.css>; rel=preload; as=style", "</app.js>; rel=modulepreload"];

fn served(place: &Place) -> Server {
    place.file("page.html", "<p>page");
    place.file("index.html", "<p>index");
    place.file("private/page.html", "<p>private");
    place.file("other.html", "<p>other");
    place.file("staff/index.html", "<p>staff");
    let links = format!("early-hints = ['{}', '{}']\n", LINKS[0], LINKS[1]);
    let rules = format!(
        "[realm.staff]\nusers = {{ a = '{}' }}\n[[rule]]\npath = '*'\n{links}[[rule]]\npath = '/other*'\n\
         early-hints = []\n[[rule]]\npath = '/private/*'\nauth = 'staff'\n\
         [[rule]]\npath = '/staff/index.html'\nauth = 'staff'\n",
        hash("one")
    );
    let path = place.beside("rules.toml");
    fs::write(&path, rules).expect("written");
    secure(place, &["--rules", path.to_str().expect("UTF-8")])
}

/// All heads that curl receives, each as one text.
fn heads(server: &Server, version: &str, target: &str, fields: &[&str]) -> Vec<String> {
    let port = server.secure.expect("a TLS listener").port();
    let output = Command::new("curl")
        .args([
            "--silent",
            "--insecure",
            "--max-time",
            "120",
            "--dump-header",
            "-",
            "--output",
            "/dev/null",
            version,
        ])
        .args(fields.iter().flat_map(|field| ["--header", field]))
        .arg(format!("https://127.0.0.1:{port}{target}"))
        .output()
        .expect("curl runs");
    assert!(output.status.success(), "{version} {target}: {:?}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_terminator("\r\n\r\n").map(str::to_owned).collect()
}

/// All responses to one request over HTTP/3, the interim ones first.
fn by_h3(place: &Place, server: &Server, target: &str, mode: Option<&str>) -> Vec<Response<()>> {
    let address = server.secure.expect("a TLS listener");
    let mut tls = config(&place.beside("cert.pem"));
    tls.alpn_protocols = vec!["h3".into()];
    let ask = async {
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
        let tls = QuicClientConfig::try_from(tls).expect("TLS 1.3");
        let connecting = endpoint.connect_with(quinn::ClientConfig::new(Arc::new(tls)), address, "localhost");
        let connection = connecting.expect("an address").await.expect("a handshake");
        let (mut driver, mut sender) =
            h3::client::new(h3_quinn::Connection::new(connection)).await.expect("HTTP/3");
        let driving = tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        let mut request = Request::get(format!("https://localhost{target}"));
        if let Some(mode) = mode {
            request = request.header("sec-fetch-mode", mode);
        }
        let mut stream = sender.send_request(request.body(()).expect("a request")).await.expect("sent");
        stream.finish().await.expect("sent");
        let mut responses = Vec::new();
        loop {
            let response = stream.recv_response().await.expect("a response");
            let is_last = !response.status().is_informational();
            responses.push(response);
            if is_last {
                while stream.recv_data().await.expect("a body").is_some() {}
                driving.abort();
                return responses;
            }
        }
    };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(ask)
}

#[test]
fn browsers_that_go_to_a_page_are_told_what_it_needs_before_it() {
    let place = Place::new();
    let server = served(&place);
    for (target, mode, is_told) in [
        ("/page.html", Some("navigate"), true),
        ("/", Some("navigate"), true),
        ("/page.html", Some("no-cors"), false),
        ("/page.html", None, false),
        ("/other.html", Some("navigate"), false),
        // What isn't for everybody isn't announced to anybody.
        ("/private/page.html", Some("navigate"), false),
        ("/staff/", Some("navigate"), false),
    ] {
        let fields: Vec<String> = mode.iter().map(|mode| format!("sec-fetch-mode: {mode}")).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        for version in ["--http1.1", "--http2"] {
            let heads = heads(&server, version, target, &fields);
            let is_told = is_told && version == "--http2";
            assert_eq!(heads.len(), 1 + usize::from(is_told), "{version} {target} {mode:?}: {heads:?}");
            if is_told {
                assert!(heads[0].starts_with("HTTP/2 103"), "{heads:?}");
                assert!(LINKS.iter().all(|link| heads[0].contains(&format!("link: {link}"))), "{heads:?}");
                assert!(heads[1].starts_with("HTTP/2 200"), "{heads:?}");
            }
        }
        let responses = by_h3(&place, &server, target, mode);
        assert_eq!(responses.len(), 1 + usize::from(is_told), "HTTP/3 {target} {mode:?}");
        if is_told {
            assert_eq!(responses[0].status(), 103);
            let links: Vec<_> =
                responses[0].headers().get_all("link").iter().map(|link| link.as_bytes()).collect();
            assert_eq!(links, LINKS.map(str::as_bytes));
            assert_eq!(responses[1].status(), 200);
        }
    }
    let password = format!("authorization: Basic {}", BASE64_STANDARD.encode("a:one"));
    let heads = heads(&server, "--http2", "/private/page.html", &[&password, "sec-fetch-mode: navigate"]);
    assert!(heads.len() == 1 && heads[0].starts_with("HTTP/2 200"), "{heads:?}");
}

#[test]
fn what_a_page_needs_is_in_its_head_by_every_version() {
    let place = Place::new();
    let server = served(&place);
    for version in ALL {
        let answer = versions::get(&server, version, "/page.html", &[]);
        assert_eq!(answer.field("link"), Some(LINKS.join(", ")), "{version}");
        assert_eq!(versions::get(&server, version, "/other.html", &[]).field("link"), None, "{version}");
    }
}

#[test]
fn the_rules_that_sighup_brings_are_hinted_by() {
    let place = Place::new();
    let server = served(&place);
    let navigate = ["sec-fetch-mode: navigate"];
    assert_eq!(heads(&server, "--http2", "/page.html", &navigate).len(), 2);
    fs::write(place.beside("rules.toml"), "").expect("written");
    server.signal(rustix::process::Signal::HUP);
    crate::place::until("no hints", || heads(&server, "--http2", "/page.html", &navigate).len() == 1);
}
