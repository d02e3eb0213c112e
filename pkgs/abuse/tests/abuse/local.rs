//! A page from elsewhere in a browser on this machine. Its name may resolve to 127.0.0.1 (DNS rebinding), and its
//! requests say which page they come from.

use std::net::SocketAddr;

use abuse::client::{Answer, Client};

use crate::services::{Service, api, links};

/// The answer to a request with exactly these headers.
fn ask(address: SocketAddr, method: &str, target: &str, fields: &str, body: &str) -> Answer {
    let mut client = Client::connect(address).expect("it listens");
    let length = body.len();
    client.send(format!("{method} {target} HTTP/1.1\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")).expect("it reads");
    client.receive(method).expect("an answer")
}

/// Names that don't belong to this machine, whatever they resolve to.
fn foreign(port: u16) -> Vec<String> {
    [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "localhost.evil.example".to_owned(),
        "127.0.0.1.evil.example".to_owned(),
        "evillocalhost".to_owned(),
        "localhost.".repeat(2) + "evil",
        "203.0.113.1".to_owned(),
        format!("203.0.113.1:{port}"),
        "[2001:db8::1]".to_owned(),
        "127.0.0.1:1@evil.example".to_owned(),
    ]
    .to_vec()
}

/// Names that belong to this machine.
fn own(port: u16) -> Vec<String> {
    [
        "localhost".to_owned(),
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        format!("LocalHost:{port}"),
    ]
    .to_vec()
}

/// Checks that requests without a key are only served for local names. `write` is a body, different each time, which is
/// answered with `made` if the names are local.
fn hold(
    service: &Service,
    listener: usize,
    read: &str,
    target: &str,
    write: impl Fn(usize) -> String,
    made: u16,
) {
    let address = service.listeners[listener].door.address;
    let port = address.port();
    let mut number = 0;
    let mut post = |fields: &str| {
        number += 1;
        let fields = format!("Content-Type: application/json\r\n{fields}");
        ask(address, "POST", target, &fields, &write(number))
    };
    let refused =
        |answer: &Answer, what: &str| assert!(matches!(answer.status, 400 | 403 | 421), "{what}: {answer:?}");
    for name in foreign(port) {
        refused(&post(&format!("Host: {name}\r\n")), &format!("POST with Host {name}"));
        let get = ask(address, "GET", read, &format!("Host: {name}\r\n"), "");
        refused(&get, &format!("GET with Host {name}"));
        if !name.contains('@') {
            let origin = format!("Host: localhost:{port}\r\nOrigin: http://{name}\r\n");
            refused(&post(&origin), &format!("POST with Origin {name}"));
        }
    }
    for origin in ["null", "https://evil.example", "http://127.0.0.1.evil.example"] {
        let answer = post(&format!("Host: localhost:{port}\r\nOrigin: {origin}\r\n"));
        refused(&answer, &format!("POST with Origin {origin}"));
    }
    for name in own(port) {
        let answer = post(&format!("Host: {name}\r\n"));
        assert_eq!(answer.status, made, "POST with Host {name}: {answer:?}");
        let answer = ask(address, "GET", read, &format!("Host: {name}\r\n"), "");
        assert_eq!(answer.status, 200, "GET with Host {name}: {answer:?}");
    }
    // The request comes from a page of the service itself.
    let answer = post(&format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n"));
    assert_eq!(answer.status, made, "{answer:?}");
}

#[test]
fn an_api_without_keys_takes_local_names_alone() {
    let service = api(&[]);
    let user = |number| format!(r#"{{"email":"a{number}@b.example","name":"n"}}"#);
    hold(&service, 0, "/v1/users", "/v1/users", user, 201);
}

/// The admin listener needs no key, even if the public listener requires one.
#[test]
fn the_admin_listener_of_the_api_takes_local_names_alone() {
    let service = api(&[]);
    let admin = service.listeners.iter().position(|listener| listener.admin).expect("one");
    hold(&service, admin, "/metrics", "/readyz", |_| String::new(), 405);
}

/// Only the operator gives out keys, and a page from elsewhere has none.
#[test]
fn who_has_no_key_comes_to_links_by_local_names_alone() {
    let service = links(&[]);
    let link = |number| format!(r#"{{"code":"n{number}","target":"https://t.example/"}}"#);
    hold(&service, 1, "/api/v1/openapi.json", "/api/v1/links", link, 401);
}
