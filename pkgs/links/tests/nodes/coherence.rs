//! A write through one server is visible there at once, and on the other server within the bound.

use std::time::{Duration, Instant};

use bench::postgres::Durability;
use serde_json::json;
use testkit::until;

use crate::server::alone;
use crate::{STALENESS, ask, misses, node, start};

/// How much a busy machine may add to the bound, if a thread wakes up late.
const LATE: Duration = Duration::from_secs(5);

#[test]
fn a_write_on_one_server_is_seen_at_once_on_its_own_and_within_the_bound_on_the_other() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let (one, other) = (node(&place, &[]), node(&place, &[]));
    let (mut api, mut here, mut there) = (one.api(), one.connect(), other.connect());
    let at = |n: u32| (307, Some(format!("https://t.example/{n}")));
    for round in 0..20_u32 {
        let code = format!("c{round}");
        let edit = |api: &mut crate::server::Api, n: u32| {
            let patch = json!({ "target": format!("https://t.example/{n}") });
            api.edit(&code, &patch).expect("an answer")
        };
        // Both servers have cached that there is no such link.
        assert_eq!((ask(&mut here, &code).0, ask(&mut there, &code).0), (404, 404));
        for step in 0..=4 {
            let expected = match step {
                0 => {
                    assert_eq!(api.create(&code, "https://t.example/0").expect("an answer"), 201);
                    at(0)
                }
                4 => {
                    assert_eq!(api.delete(&code).expect("an answer"), 204);
                    (404, None)
                }
                n => {
                    assert_eq!(edit(&mut api, n), 200);
                    at(n)
                }
            };
            let written = Instant::now();
            assert_eq!(ask(&mut here, &code), expected, "its own server");
            let seen = loop {
                let asked = Instant::now();
                if ask(&mut there, &code) == expected {
                    break asked;
                }
                // The time of the request counts, however long its answer took.
                assert!(
                    asked.duration_since(written) < STALENESS + LATE,
                    "the other server still answers what was before"
                );
            };
            // The answer stays the same.
            assert_eq!(ask(&mut there, &code), expected, "{:?}", seen.duration_since(written));
        }
    }
    assert_eq!(api.create("hot", "https://t.example/hot").expect("an answer"), 201);
    // While nobody knows whether the cache is outdated, it isn't used.
    until("a link that is asked for again and again comes from the cache", || {
        let before = misses(&one);
        for _ in 0..200 {
            assert_eq!(ask(&mut here, "hot").0, 307);
        }
        misses(&one) - before < 20
    });
    one.stop();
    other.stop();
}

#[test]
fn what_is_no_code_of_a_domain_fails_alone_among_many() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let server = node(&place, &[]);
    let mut api = server.api();
    let made = api.ask_domains("POST", "", r#"{"host":"b.example"}"#).expect("an answer");
    assert_eq!(made.status, 201);
    let link = json!({ "code": "way", "domain": "b.example", "target": "https://t.example/" });
    assert_eq!(api.add(&link).expect("an answer"), 201);
    let too_long = "x".repeat(65);
    let names = ["way", &too_long].map(|code| json!({ "code": code, "domain": "b.example" }));
    let edit = json!({ "links": names, "set": { "title": "A title" } }).to_string();
    for (path, body, expected) in [
        ("/batch-edit", edit, [200, 404]),
        ("/batch-delete?domain=b.example", json!(["way", too_long]).to_string(), [204, 404]),
    ] {
        let answer = api.ask("POST", path, &body).expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let outcomes: Vec<serde_json::Value> = serde_json::from_slice(&answer.body).expect("JSON");
        let statuses: Vec<_> = outcomes.iter().map(|outcome| outcome["status"].as_u64()).collect();
        assert_eq!(statuses, expected.map(Some), "{path}");
    }
    assert!(!server.log().contains("panicked"), "{}", server.log());
    server.stop();
}

#[test]
fn a_domain_of_one_server_is_one_of_the_other() {
    let _alone = alone();
    let (_postgres, place) = start(Durability::None);
    let (one, other) = (node(&place, &[]), node(&place, &[]));
    let (mut api, mut there) = (one.api(), other.connect());
    let made = api.ask_domains("POST", "", r#"{"host":"go.example","root_target":"https://r.example/"}"#);
    assert_eq!(made.expect("an answer").status, 201);
    let link = json!({ "code": "x", "domain": "go.example", "target": "https://d.example/" });
    assert_eq!(api.add(&link).expect("an answer"), 201);
    for (path, location) in [("", "https://r.example/"), ("x", "https://d.example/")] {
        until(path, || {
            there.send(format!("GET /{path} HTTP/1.1\r\nHost: go.example\r\n\r\n")).expect("it listens");
            there.receive().expect("an answer").value("location") == Some(location)
        });
    }
    let in_use = api.ask_domains("DELETE", "/go.example", "").expect("an answer");
    assert_eq!(in_use.status, 409, "{}", in_use.text());
    assert_eq!(api.ask_domains("DELETE", "/go.example?force=true", "").expect("an answer").status, 204);
    until("gone", || {
        there.send("GET /x HTTP/1.1\r\nHost: go.example\r\n\r\n").expect("it listens");
        there.receive().expect("an answer").status == 404
    });
    one.stop();
    other.stop();
}
