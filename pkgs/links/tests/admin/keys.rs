//! Keys over HTTP: they are created, listed, used, expired and revoked, and never have more rights than the key that
//! creates them.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use links::store::{NewToken, Scope};
use links::when::Timestamp;
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::{uninterrupted, until};
use ureq::SendBody;

use crate::server::{Reply, Server};

const KEYS: &str = "/api/v1/keys";

/// Sends a request with this key instead of the server's.
fn ask(server: &Server, key: &str, method: &str, path: &str, body: &str) -> Reply {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let headers = if body.is_empty() { &headers[..1] } else { &headers[..] };
    let body = if body.is_empty() {
        SendBody::none()
    } else {
        SendBody::from_owned_reader(std::io::Cursor::new(body.to_owned()))
    };
    server.send(method, path, headers, body)
}

fn make(server: &Server, new: NewToken) -> String {
    server.store.create_token_as(new).wait().expect("a key").1
}

fn listed(server: &Server) -> Vec<Value> {
    let reply = server.get(KEYS);
    assert_eq!((reply.status, reply.header("cache-control")), (200, "no-store"), "{}", reply.text());
    reply.json()["keys"].as_array().expect("keys").clone()
}

#[test]
fn a_key_lives_from_create_to_revoke_and_its_secret_is_told_once() {
    let server = Server::start();
    server.post("/api/v1/domains", r#"{"host":"a.example"}"#);
    let body = json!({ "name": " ci ", "scope": "read", "domains": ["A.Example", "default", "a.example"],
        "expires_at": "2130-01-31" });
    let reply = server.post(KEYS, &body.to_string());
    assert_eq!((reply.status, reply.header("cache-control")), (201, "no-store"), "{}", reply.text());
    let made = reply.json();
    let secret = made["key"].as_str().expect("a secret").to_owned();
    let place = format!("{KEYS}/{}", made["id"]);
    assert_eq!(reply.header("location"), place);
    assert_eq!(
        (&made["name"], &made["scope"], &made["domains"], &made["expires_at"]),
        (&json!("ci"), &json!("read"), &json!(["a.example", "default"]), &json!("2130-01-31T00:00:00Z"))
    );
    let read = server.get(&place);
    assert_eq!(read.status, 200, "{}", read.text());
    let keys = listed(&server);
    assert_eq!(keys.len(), 3);
    assert_eq!(keys[2], read.json());
    assert!(made.get("last_used_at").is_none() && !json!(keys).to_string().contains(&secret[..20]));

    let told = ask(&server, &secret, "GET", "/api/v1/whoami", "");
    assert_eq!(told.header("cache-control"), "no-store");
    assert_eq!(
        told.json(),
        json!({ "id": made["id"], "name": "ci", "scope": "read", "domains": ["a.example", "default"],
            "expires_at": "2130-01-31T00:00:00Z" })
    );
    let whole = server.get("/api/v1/whoami").json();
    assert_eq!(
        (&whole["scope"], whole.get("domains"), whole.get("expires_at")),
        (&json!("write"), None, None)
    );

    assert_eq!(server.ask("DELETE", &place, &[], "").status, 204);
    ask(&server, &secret, "GET", "/api/v1/whoami", "").problem(401);
    for method in ["GET", "DELETE"] {
        for id in [&*made["id"].to_string(), "x", "-1", "99999999999999999999"] {
            server.ask(method, &format!("{KEYS}/{id}"), &[], "").problem(404);
        }
    }
    let own = format!("{KEYS}/{}", whole["id"]);
    assert!(server.ask("DELETE", &own, &[], "").problem(409)["detail"].to_string().contains("itself"));
    assert_eq!(server.get(&own).status, 200);
}

#[test]
fn what_is_wrong_with_a_key_is_told_at_its_field() {
    let server = Server::start();
    let with = |field: &str, value: Value| {
        let mut body = json!({ "name": "n", "scope": "read" });
        body[field] = value;
        body
    };
    for (body, pointer) in [
        (json!({ "name": "n" }), ""),
        (with("name", json!("")), "/name"),
        (with("name", json!("x".repeat(101))), "/name"),
        (with("name", json!("a\u{7}b")), "/name"),
        (with("scope", json!("all")), "/scope"),
        (with("domains", json!([])), "/domains"),
        (with("domains", json!(["default", "no.example"])), "/domains/1"),
        (with("expires_at", json!("soon")), "/expires_at"),
        (with("expires_at", json!("2001-01-01")), "/expires_at"),
        (with("rights", json!(1)), "/rights"),
    ] {
        let problem = server.post(KEYS, &body.to_string()).problem(422);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}: {problem}");
    }
    server.post(KEYS, &"x".repeat(100_000)).problem(413);
    assert_eq!(listed(&server).len(), 2);
}

/// A key that may not write everything has no access to keys, and no key can extend its own rights.
#[test]
fn a_key_makes_none_that_may_more_than_itself() {
    let server = Server::start();
    server.post("/api/v1/domains", r#"{"host":"a.example"}"#);
    let domain = server.store.domains().id(Some("a.example")).expect("it is there");
    let new =
        |domains, expires_at| NewToken { name: "k".to_owned(), scope: Scope::Write, domains, expires_at };
    let bound = make(&server, new(Some(vec![domain]), None));
    let before = listed(&server).len();
    let wanted = json!({ "name": "more", "scope": "write" });
    let wanted_here = json!({ "name": "more", "scope": "read", "domains": ["a.example"] });
    for key in [&server.read, &bound] {
        for body in [&wanted, &wanted_here] {
            ask(&server, key, "POST", KEYS, &body.to_string()).problem(403);
        }
        for (method, path) in [("GET", KEYS), ("GET", "/api/v1/keys/1"), ("DELETE", "/api/v1/keys/1")] {
            ask(&server, key, method, path, "").problem(403);
        }
        assert_eq!(ask(&server, key, "GET", "/api/v1/whoami", "").status, 200);
    }
    assert_eq!(listed(&server).len(), before);

    let end = Timestamp(Timestamp::now().0 + 3_600);
    let ending = make(&server, new(None, Some(end)));
    let made = ask(&server, &ending, "POST", KEYS, &wanted.to_string()).json();
    assert_eq!(made["expires_at"], end.to_string(), "it ends with the one that made it");
    let later = json!({ "name": "later", "scope": "read", "expires_at": "2h" });
    let problem = ask(&server, &ending, "POST", KEYS, &later.to_string()).problem(422);
    assert_eq!(problem["errors"][0]["pointer"], "/expires_at");
    let sooner = json!({ "name": "sooner", "scope": "read", "expires_at": "10m" });
    assert_eq!(ask(&server, &ending, "POST", KEYS, &sooner.to_string()).status, 201);
}

#[test]
fn a_key_ends_when_it_says_and_its_last_use_is_known() {
    let server = Server::start();
    let used = |name: &str| {
        let keys = listed(&server);
        let key = keys.iter().find(|key| key["name"] == name).expect("it is listed");
        key.get("last_used_at").map(|at| at.as_str().expect("an instant").to_owned())
    };
    // Find a key that is used before it expires, also on a slow machine.
    let (name, short, end) = (1..)
        .find_map(|number| {
            let (name, end) = (format!("short-{number}"), Timestamp(Timestamp::now().0 + 2 * number));
            let new =
                NewToken { name: name.clone(), scope: Scope::Read, domains: None, expires_at: Some(end) };
            let short = make(&server, new);
            assert_eq!(used(&name), None);
            let status = ask(&server, &short, "GET", "/api/v1/links", "").status;
            let was_in_time = Timestamp::now() < end;
            assert!(status == 200 || !was_in_time, "{status}");
            was_in_time.then_some((name, short, end))
        })
        .expect("there is always another");
    // The use is recorded in the background, so the request does not wait for it.
    until("the use is noted", || used(&name).is_some());
    let at = used(&name).expect("it is noted");
    let second = Timestamp::parse(&at).expect("an instant").0;
    assert!((Timestamp::now().0 - second).abs() <= 60, "{at}");
    while Timestamp::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
    let refused = ask(&server, &short, "GET", "/api/v1/links", "");
    assert!(refused.problem(401)["detail"].to_string().contains("ended at"), "{}", refused.text());
    assert_eq!(refused.header("www-authenticate"), "Bearer error=\"invalid_token\"");
}

#[test]
fn what_a_key_has_begun_ends_with_the_key() {
    let server = Server::start();
    server.create("way");
    let link = server.get("/api/v1/links/way").json();
    for (path, media_type, body) in [
        (KEYS, "application/json", json!({ "name": "more", "scope": "write" })),
        (
            "/api/v1/links/import?on_conflict=replace",
            "application/x-ndjson",
            json!({ "code": "way", "target": "https://example.org/elsewhere" }),
        ),
    ] {
        let new =
            NewToken { name: "leaked".to_owned(), scope: Scope::Write, domains: None, expires_at: None };
        let (info, key) = server.store.create_token_as(new).wait().expect("a key");
        let body = format!("{body}\n");
        let mut client = Client::connect(server.address);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n{}",
            body.len(),
            &body[..1]
        ));
        // Longer than what is read at once.
        thread::sleep(Duration::from_secs(3));
        server.store.revoke_token(info.id).wait().expect("it is known");
        client.send(&body[1..]);
        assert_eq!(client.receive(true).expect("an answer").status, 401, "{path}");
    }
    assert_eq!(server.get("/api/v1/links/way").json(), link);
    assert_eq!(listed(&server).len(), 2);
}

#[test]
fn an_import_ends_with_its_key_while_its_passwords_are_hashed() {
    let server = Server::start();
    let new = NewToken { name: "leaked".to_owned(), scope: Scope::Write, domains: None, expires_at: None };
    let (info, key) = server.store.create_token_as(new).wait().expect("a key");
    // Their passwords take some 20 ms each: far longer than the key lives.
    let rows: String = (0..3_000).map(|row| format!("p{row},https://example.com/,secret\n")).collect();
    let body = format!("code,target,password\n{rows}");
    let mut client = Client::connect(server.address);
    client.send(format!(
        "POST /api/v1/links/import HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: text/csv\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let reader = server.store.reader().expect("a reader");
    until("the import has begun", || {
        let keys = reader.tokens().expect("the keys");
        keys.iter().any(|known| known.id == info.id && known.last_used_at.is_some())
    });
    let begun = Instant::now();
    server.store.revoke_token(info.id).wait().expect("it is known");
    assert_eq!(client.receive(true).expect("an answer").status, 401);
    assert!(begun.elapsed() < Duration::from_secs(20), "the answer waits for all passwords");
    assert!(reader.is_empty().expect("an answer"), "links are stored for a key that has ended");
}

#[test]
fn an_export_ends_with_its_key() {
    let server = Server::start();
    // Together they are far longer than what sockets hold.
    let rows = format!("https://example.com/{}\n", "x".repeat(1_500)).repeat(10_000);
    for _ in 0..5 {
        let csv = [("content-type", "text/csv")];
        let imported = server.ask("POST", "/api/v1/links/import", &csv, &format!("target\n{rows}"));
        assert_eq!(imported.json()["created"], 10_000, "{}", imported.text());
    }
    let new = NewToken { name: "leaked".to_owned(), scope: Scope::Read, domains: None, expires_at: None };
    let (info, key) = server.store.create_token_as(new).wait().expect("a key");
    let mut client = Client::connect(server.address);
    client.send(format!(
        "GET /api/v1/links/export?format=csv HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Authorization: Bearer {key}\r\n\r\n"
    ));
    assert_eq!(client.receive_head().expect("an answer").status, 200);
    server.store.revoke_token(info.id).wait().expect("it is known");
    let (mut body, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    // A reset ends it too.
    while let Ok(count @ 1..) = uninterrupted(|| client.stream.read(&mut piece)) {
        body.extend_from_slice(&piece[..count]);
        // All of it takes longer than it takes to see that the key has ended.
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!body.ends_with(b"\r\n0\r\n\r\n"), "all of it is there: {} bytes", body.len());
}
