//! After a write, the next request on every worker sees it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::{Answer, Client};
use crate::server::{Place, Server, alone};

/// The kernel distributes connections to workers by hash. With 24 connections for 4 workers, it leaves one out only
/// once in 250 times.
const CONNECTIONS: usize = 24;

fn clients(server: &Server) -> Vec<Client> {
    (0..CONNECTIONS).map(|_| server.connect()).collect()
}

/// Sends a request on all connections at once.
fn ask(clients: &mut [Client], path: &str) -> Vec<Answer> {
    for client in &mut *clients {
        client.send(format!("GET /{path} HTTP/1.1\r\nHost: s.example\r\n\r\n")).unwrap();
    }
    clients.iter_mut().map(|client| client.receive().unwrap()).collect()
}

#[test]
fn a_write_is_seen_by_the_next_request_on_every_worker() {
    let _alone = alone();
    let place = Place::new();
    let server = place.serve(&["--workers", "4"]);
    let (mut api, mut clients) = (server.api(), clients(&server));
    let statuses = |clients: &mut [Client], path: &str, expected: u16| {
        for answer in ask(clients, path) {
            assert_eq!(answer.status, expected, "{path}");
        }
    };
    statuses(&mut clients, "abc", 404);
    assert_eq!(api.create("abc", "https://t.example/").unwrap(), 201);
    for n in 0..500 {
        let target = format!("https://t.example/{n}");
        assert_eq!(api.edit("abc", &json!({ "target": target })).unwrap(), 200);
        for answer in ask(&mut clients, "abc") {
            assert_eq!(answer.location(), target);
        }
    }
    for n in 0..20 {
        let code = format!("c{n}");
        statuses(&mut clients, &code, 404);
        assert_eq!(api.create(&code, "https://t.example/").unwrap(), 201);
        statuses(&mut clients, &code, 307);
        assert_eq!(api.edit(&code, &json!({ "expires_at": "2001-01-01T00:00:00Z" })).unwrap(), 200);
        statuses(&mut clients, &code, 410);
        assert_eq!(api.edit(&code, &json!({ "expires_at": null })).unwrap(), 200);
        statuses(&mut clients, &code, 307);
        assert_eq!(api.delete(&code).unwrap(), 204);
        statuses(&mut clients, &code, 404);
    }
    server.stop();
}

#[test]
fn a_write_by_another_process_is_seen() {
    let _alone = alone();
    let place = Place::new();
    let server = place.serve(&["--workers", "4"]);
    let mut clients = clients(&server);
    let mut seen = |expected: &dyn Fn(&Answer) -> bool| {
        // This takes a tenth of a second if nothing else runs (`FOREIGN_POLL`).
        let deadline = Instant::now() + Duration::from_secs(120);
        while !ask(&mut clients, "abc").iter().all(expected) {
            assert!(Instant::now() < deadline, "not seen");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let run = |arguments: &[&str]| {
        let output = place.command(arguments).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    seen(&|answer| answer.status == 404);
    run(&["add", "https://t.example/", "--code", "abc"]);
    seen(&|answer| answer.status == 307);
    for n in 0..5 {
        let target = format!("https://t.example/{n}");
        run(&["edit", "abc", "--target", &target]);
        seen(&|answer| answer.location() == target);
    }
    run(&["rm", "abc"]);
    seen(&|answer| answer.status == 404);
    server.stop();
}
