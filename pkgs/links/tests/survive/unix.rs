//! Redirects over a Unix socket, as a proxy on the same machine requests them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::server::{Place, alone};

/// The answer to a request on a new connection.
fn ask(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The answer to a password. According to the proxy, the visitor is at 203.0.113.`host`.
fn attempt(socket: &Path, host: u8, password: &str) -> String {
    let body = format!("password={password}");
    let fields = format!("Content-Length: {}\r\nX-Forwarded-For: 203.0.113.{host}", body.len());
    ask(socket, &format!("POST /locked HTTP/1.1\r\nHost: h\r\n{fields}\r\nConnection: close\r\n\r\n{body}"))
}

#[test]
fn visitors_are_answered_on_a_unix_socket_as_elsewhere() {
    let _alone = alone();
    let place = Place::new();
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("links.sock");
    let listen = format!("unix:{}", socket.display());
    let server = place.serve(&["--listen", &listen, "--trusted-proxy", "127.0.0.1"]);
    assert!(server.says(&listen), "it says where it is");
    let mut api = server.api();
    assert_eq!(api.create("abc", "https://t.example/").unwrap(), 201);
    let locked = serde_json::json!({ "code": "locked", "target": "https://t.example/", "password": "right" });
    assert_eq!(api.add(&locked).unwrap(), 201);
    for path in ["/abc", "/%61bc"] {
        let answer = ask(&socket, &format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 307 "), "{path}: {answer}");
    }
    // Each visitor of the proxy has its own attempts.
    assert!((0..40).any(|_| attempt(&socket, 1, "wrong").starts_with("HTTP/1.1 429 ")), "and no more");
    assert!(attempt(&socket, 2, "right").starts_with("HTTP/1.1 303 "));
    server.stop();
    let server = place.serve(&[]);
    assert_eq!(server.api().clicks("abc"), 2);
    server.stop();
}
