//! What all answers share: routes, methods, sizes, media types and compression. Also how clients that misbehave are
//! answered.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ureq::SendBody;

use crate::server::Server;

/// Sends these bytes, and reads until the server closes the connection.
fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn unknown_routes_and_wrong_methods_are_problems() {
    let server = Server::start();
    for path in ["/api", "/api/v1/nothing", "/api/v1/links/a/b", "/api/v1/links/", "/x"] {
        server.get(path).problem(404);
    }
    for (method, path, allow) in [
        ("DELETE", "/api/v1/links", "POST, GET, HEAD"),
        ("PUT", "/api/v1/links/a", "GET, HEAD, PATCH, DELETE"),
        ("GET", "/api/v1/links/batch", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
    ] {
        let reply = server.ask(method, path, &[], "");
        reply.problem(405);
        assert_eq!(reply.header("allow"), allow, "{method} {path}");
    }
}

#[test]
fn head_is_get_without_the_body() {
    let server = Server::start();
    server.create("a");
    for path in ["/healthz", "/api/v1/links/a", "/api/v1/links/export?format=csv", "/api/v1/links/a/qr"] {
        let (get, head) = (server.get(path), server.ask("HEAD", path, &[], ""));
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert_eq!(head.header("etag"), get.header("etag"), "{path}");
    }
}

#[test]
fn bodies_have_a_bound_whether_announced_or_not() {
    let server = Server::start();
    let long = format!(r#"{{"target":"https://example.com/","title":"{}"}}"#, "x".repeat(64 * 1024));
    let bearer = format!("Bearer {}", server.write);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let chunked = SendBody::from_owned_reader(std::io::Cursor::new(long.clone()));
    server.send("POST", "/api/v1/links", &headers, chunked).problem(413);
    let length = long.len().to_string();
    let announced = [headers[0], headers[1], ("content-length", length.as_str())];
    server
        .send("POST", "/api/v1/links", &announced, SendBody::from_owned_reader(std::io::Cursor::new(long)))
        .problem(413);
}

#[test]
fn only_json_is_taken_as_json() {
    let server = Server::start();
    let body = r#"{"target":"https://example.com/"}"#;
    for headers in [
        [("content-type", "text/plain"), ("x-a", "b")],
        [("content-type", "application/merge-patch+json"), ("x-a", "b")],
        [("content-type", "application/json"), ("content-encoding", "gzip")],
    ] {
        server.ask("POST", "/api/v1/links", &headers, body).problem(415);
    }
    assert_eq!(
        server
            .ask("POST", "/api/v1/links", &[("content-type", "Application/JSON;charset=utf-8")], body)
            .status,
        201
    );
}

#[test]
fn answers_over_a_kilobyte_are_compressed_as_the_client_likes() {
    let server = Server::start();
    for number in 0..30 {
        server.create(&format!("c{number}"));
    }
    let plain = server.get("/api/v1/links");
    assert!(plain.body.len() > 1024);
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), ("", "accept-encoding"));
    for (accept, coding) in [
        ("gzip", "gzip"),
        ("br", "br"),
        ("zstd", "zstd"),
        ("gzip, br, zstd", "br"),
        ("identity", ""),
        ("unknown", ""),
    ] {
        for path in ["/api/v1/links", "/api/v1/links/export?format=json", "/api/v1/openapi.json"] {
            let reply = server.ask("GET", path, &[("accept-encoding", accept)], "");
            assert_eq!((reply.status, reply.header("content-encoding")), (200, coding), "{path} {accept}");
            let whole = server.get(path).body;
            match coding {
                "" => assert_eq!(reply.body, whole),
                _ => assert!(reply.body.len() < whole.len() / 2, "{path} {accept}: {}", reply.body.len()),
            }
        }
        let small = server.ask("GET", "/api/v1/links?limit=1", &[("accept-encoding", accept)], "");
        assert_eq!(
            (small.header("content-encoding"), small.json()["links"].as_array().unwrap().len()),
            ("", 1)
        );
    }
}

#[test]
fn a_compressed_answer_decodes_to_the_plain_one() {
    let server = Server::start();
    for number in 0..30 {
        server.create(&format!("c{number}"));
    }
    let plain = server.get("/api/v1/links").body;
    let gzip = server.ask("GET", "/api/v1/links", &[("accept-encoding", "gzip")], "").body;
    let mut decoded = Vec::new();
    flate2::read::GzDecoder::new(gzip.as_slice()).read_to_end(&mut decoded).unwrap();
    assert_eq!(decoded, plain);
}

#[test]
fn what_is_no_http_is_refused() {
    let server = Server::start();
    for request in ["NONSENSE\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n", "\u{16}\u{3}\u{1}"] {
        let answer = raw(&server, request.as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 408"),
            "{request:?}: {answer:?}"
        );
    }
}

#[test]
fn a_head_that_never_ends_is_answered_408() {
    let server = Server::start();
    let whole = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    std::thread::scope(|scope| {
        for (before, count) in [("", 0), (whole, 1)] {
            for half in ["G", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"] {
                let server = &server;
                scope.spawn(move || {
                    let answers = raw(server, format!("{before}{half}").as_bytes());
                    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), count, "{answers}");
                    let (_, last) = answers.split_once("HTTP/1.1 408 ").expect("a refusal");
                    assert!(last.contains("content-type: application/problem+json"), "{last}");
                    assert!(last.contains("connection: close") && last.ends_with('}'), "{last}");
                });
            }
        }
    });
}

#[test]
fn no_document_is_too_deep_to_be_refused() {
    let server = Server::start();
    for (path, open) in [
        ("/api/v1/links", "["),
        ("/api/v1/links", "{\"target\":"),
        ("/api/v1/links", "{\"target\":\"https://a/\",\"tags\":["),
        ("/api/v1/links/batch", "["),
        ("/api/v1/links/batch", "[{\"x\":"),
        ("/api/v1/links/batch-delete", "["),
    ] {
        let status = server.post(path, &open.repeat(60_000 / open.len())).status;
        assert!([400, 422].contains(&status), "{path} {open}: {status}");
    }
    server.create("after");
}

#[test]
fn what_follows_a_request_that_closes_or_is_refused_is_not_served() {
    let server = Server::start();
    let next = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (request, status) in [
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "200"),
        ("GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n", "200"),
        ("GET /healthz HTTP/1.1\nHost: localhost\n\n", "400"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nExpect: more\r\n\r\n", "417"),
        ("POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", "501"),
        ("GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", "505"),
    ] {
        let answers = raw(&server, format!("{request}{next}").as_bytes());
        assert_eq!(answers.matches("\r\ncontent-length: ").count(), 1, "{request:?}: {answers}");
        assert_eq!(answers.split(' ').nth(1), Some(status), "{request:?}: {answers}");
    }
    let text = server.send("GET", "/metrics", &[], SendBody::none()).text();
    assert!(text.contains(r#"method="other",route="unknown",status="417"} 1"#), "counted: {text}");
}
