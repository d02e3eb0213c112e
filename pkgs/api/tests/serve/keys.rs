//! Keys over HTTP: created, listed, used and revoked, on either database.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::until;

use crate::client::Answer;
use crate::place::{Place, Server, problem, value};

on_each_database! {
    a_key_lives_from_create_to_revoke_and_its_secret_is_told_once,
    keys_are_for_those_that_may_write_and_make_no_more_than_themselves,
    what_a_key_has_begun_ends_with_the_key,
}

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

fn create(server: &Server, key: &str, body: &Value) -> Answer {
    server.send("POST", "/v1/keys", &bearer(key), body)
}

fn listed(server: &Server, key: &str) -> Vec<Value> {
    let answer = server.ask("GET", "/v1/keys", &bearer(key), "");
    assert_eq!((answer.status, answer.field("cache-control").as_deref()), (200, Some("no-store")));
    value(&answer)["keys"].as_array().expect("keys").clone()
}

fn a_key_lives_from_create_to_revoke_and_its_secret_is_told_once(place: &Place) {
    let write = place.key("write", &["--rate", "0"]);
    let audit = place.path("audit.log");
    let server = place.serve(&["--auth", "keys", "--audit-log", audit.to_str().expect("a path")]);
    let body = json!({ "name": " ci ", "scope": "read", "expires_at": "2130-01-31T00:00:00.123456789Z" });
    let created = create(&server, &write, &body);
    assert_eq!(
        (created.status, created.field("cache-control").as_deref()),
        (201, Some("no-store")),
        "{}",
        created.text()
    );
    let made = value(&created);
    let secret = made["key"].as_str().expect("a secret").to_owned();
    let path = format!("/v1/keys/{}", made["id"]);
    assert_eq!(created.field("location"), Some(path.clone()));
    assert_eq!(
        (&made["name"], &made["scope"], &made["rate"], &made["expires_at"]),
        (&json!("ci"), &json!("read"), &json!(100), &json!("2130-01-31T00:00:00.123456Z"))
    );
    assert_eq!(server.ask("GET", "/v1/users", &bearer(&secret), "").status, 200);
    // The use is recorded in the background, and then not again for a minute.
    until("the use is noted", || {
        let keys = listed(&server, &write);
        keys.iter().all(|key| key["last_used_at"].is_string())
    });
    let keys = listed(&server, &write);
    assert_eq!(keys.len(), 2);
    for key in &keys {
        assert!(key["last_used_at"].as_str() >= key["created_at"].as_str().map(|at| &at[..19]), "{key}");
    }
    let list: Value =
        serde_json::from_slice(&place.command(&["key", "list", "--json"]).stdout).expect("JSON");
    assert_eq!(list["keys"][1]["last_used_at"], keys[1]["last_used_at"], "on the command line too");
    assert_eq!(keys[1], value(&server.ask("GET", &path, &bearer(&write), "")));
    assert_eq!(keys[1]["expires_at"], made["expires_at"]);
    assert!(!json!(keys).to_string().contains(&secret[..20]) && keys[1].get("key").is_none());

    assert_eq!(server.ask("DELETE", &path, &bearer(&write), "").status, 204);
    problem(&server.ask("GET", "/v1/users", &bearer(&secret), ""), 401);
    for method in ["GET", "DELETE"] {
        for id in [&*made["id"].to_string(), "x", "-1", "99999999999999999999"] {
            problem(&server.ask(method, &format!("/v1/keys/{id}"), &bearer(&write), ""), 404);
        }
    }
    let own = format!("/v1/keys/{}", keys[0]["id"]);
    problem(&server.ask("DELETE", &own, &bearer(&write), ""), 409);
    assert_eq!(server.ask("GET", &own, &bearer(&write), "").status, 200);
    let read = || std::fs::read_to_string(&audit).expect("a log");
    until("both are logged", || read().matches('\n').count() >= 2);
    let log = read();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told: Vec<_> = lines.iter().map(|line| (line["action"].clone(), line["target"].clone())).collect();
    let id = json!(made["id"].to_string());
    assert_eq!(told, [(json!("key.create"), id.clone()), (json!("key.revoke"), id)], "{log}");
    assert_eq!(lines[0]["after"], lines[1]["before"]);
    assert!(!log.contains(&secret[..20]) && !server.log().contains(&secret[..20]));
}

fn keys_are_for_those_that_may_write_and_make_no_more_than_themselves(place: &Place) {
    let (read, slow) = (place.key("read", &[]), place.key("write", &["--rate", "50", "--expires", "2h"]));
    let server = place.serve(&["--auth", "keys"]);
    let wanted = json!({ "name": "n", "scope": "write" });
    problem(&create(&server, &read, &wanted), 403);
    for (method, path) in [("GET", "/v1/keys"), ("GET", "/v1/keys/1"), ("DELETE", "/v1/keys/1")] {
        problem(&server.ask(method, path, &bearer(&read), ""), 403);
        problem(&server.ask(method, path, "", ""), 401);
    }
    let made = value(&create(&server, &slow, &wanted));
    assert_eq!(made["rate"], 50, "{made}");
    assert_eq!(made["expires_at"], listed(&server, &slow)[1]["expires_at"]);
    let with = |field: &str, value: Value| {
        let mut body = wanted.clone();
        body[field] = value;
        body
    };
    for (body, pointer) in [
        (json!({ "name": "n" }), ""),
        (with("name", json!(" ")), "/name"),
        (with("name", json!("x".repeat(101))), "/name"),
        (with("scope", json!("all")), "/scope"),
        (with("rate", json!(51)), "/rate"),
        (with("rate", json!(0)), "/rate"),
        (with("rate", json!(-1)), "/rate"),
        (with("burst", json!(51)), "/burst"),
        (with("expires_at", json!("3h")), "/expires_at"),
        (with("expires_at", json!("2001-01-01T00:00:00Z")), "/expires_at"),
        (with("rights", json!(1)), "/rights"),
    ] {
        assert_eq!(problem(&create(&server, &slow, &body), 422), [pointer], "{body}");
    }
    assert_eq!(listed(&server, &slow).len(), 3);
}

fn what_a_key_has_begun_ends_with_the_key(place: &Place) {
    let (lasting, leaked) = (place.key("write", &[]), place.key("write", &["--rate", "50"]));
    let server = place.serve(&["--auth", "keys"]);
    let keys = listed(&server, &lasting);
    let revoked = format!("/v1/keys/{}", keys[1]["id"]);
    let body = json!({ "name": "more", "scope": "write", "rate": 0 }).to_string();
    let mut client = server.connect();
    let length = body.len();
    client.send(format!(
        "POST /v1/keys HTTP/1.1\r\nHost: localhost\r\n{}Content-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n",
        bearer(&leaked)
    ));
    // Longer than what is read at once.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(server.ask("DELETE", &revoked, &bearer(&lasting), "").status, 204);
    until("it is revoked", || server.ask("GET", "/v1/keys", &bearer(&leaked), "").status == 401);
    client.send(body);
    problem(&client.receive(true).expect("an answer"), 401);
    assert_eq!(listed(&server, &lasting).len(), 1);
}

/// A key that is created while everybody has access would outlast that access.
#[test]
fn a_service_that_asks_for_no_keys_makes_none() {
    let place = Place::new();
    let server = place.serve(&[]);
    let body = json!({ "name": "n", "scope": "read" });
    problem(&server.send("POST", "/v1/keys", "", &body), 403);
    problem(&server.get("/v1/keys"), 403);
}
