//! The database is unreachable: redirects continue, writes are refused, and everything works once it is back.

use std::time::{Duration, Instant};

use bench::postgres::Durability;
use serde_json::json;
use testkit::until;

use crate::server::alone;
use crate::{STALENESS, ask, metric, node, start};

/// How long ago a server last heard of the others' writes.
const AGE: &str = "linerate_links_feed_age_seconds";

#[test]
fn while_the_database_is_away_known_links_are_answered_and_writes_are_refused() {
    let _alone = alone();
    let (mut postgres, place) = start(Durability::Machine);
    let server = node(&place, &[]);
    let mut visitor = server.connect();
    let api = || server.api();
    assert_eq!(api().create("known", "https://t.example/known").expect("an answer"), 201);
    assert_eq!(api().create("other", "https://t.example/other").expect("an answer"), 201);
    // Wait until the feed has also reported that these links were created, after which they are read once more.
    let begun = Instant::now();
    while begun.elapsed() < STALENESS * 2 {
        assert_eq!(ask(&mut visitor, "known").0, 307);
    }
    postgres.kill();
    until("what it answers is told apart", || {
        let answer = visitor.get("known").expect("an answer");
        assert_eq!(answer.location(), "https://t.example/known", "redirects go on");
        let told = answer.value("cache-status");
        assert!(told.is_none_or(|told| told.contains("detail=database-away")), "{answer:?}");
        told.is_some()
    });
    assert!(metric(&server, AGE) > STALENESS.as_secs_f64(), "it shows for how long nothing was heard");
    let unknown = visitor.get("other").expect("an answer");
    assert_eq!((unknown.status, unknown.value("retry-after")), (503, Some("1")), "{unknown:?}");
    let (lines, asked) = (|| server.log().matches("cannot read a link").count() as u64, Instant::now());
    let before = lines();
    for _ in 0..20 {
        assert_eq!(ask(&mut visitor, "other").0, 503);
    }
    assert!(lines() - before <= 1 + asked.elapsed().as_secs(), "a line for each visit: {}", server.log());
    // Each request uses a new connection. If a request is refused before its body was read, it is the last one of its
    // connection, and the answer says so.
    for (method, path, body) in [
        ("POST", "", r#"{"target":"https://t.example/new"}"#),
        ("PATCH", "/known", r#"{"target":"https://t.example/new"}"#),
        ("DELETE", "/known", ""),
        ("GET", "/known", ""),
    ] {
        let refused = api().ask(method, path, body).expect("an answer");
        assert_eq!(
            (refused.status, refused.value("retry-after")),
            (503, Some("1")),
            "{method} {}",
            refused.text()
        );
    }
    postgres.resume().expect("it starts again");
    until("writes are taken again", || {
        api().edit("known", &json!({ "target": "https://t.example/back" })).expect("an answer") == 200
    });
    let answer = visitor.get("known").expect("an answer");
    assert_eq!((answer.location(), answer.value("cache-status")), ("https://t.example/back", None));
    until("it hears again", || metric(&server, AGE) < STALENESS.as_secs_f64());
    until("clicks from before and meanwhile are counted", || api().clicks("known") >= 7);
    server.stop();
}

#[test]
fn clicks_that_a_server_was_granted_outlast_an_outage_of_the_database() {
    let _alone = alone();
    let (mut postgres, place) = start(Durability::Machine);
    let server = node(&place, &[]);
    let link = json!({ "code": "some", "target": "https://t.example/", "max_clicks": 4_096 });
    assert_eq!(server.api().add(&link).expect("an answer"), 201);
    let mut visitor = server.connect();
    assert_eq!(ask(&mut visitor, "some").0, 307);
    let mut followed = 1;
    postgres.kill();
    // Longer than a server keeps clicks that nobody asks for while it has a database.
    let away = Instant::now();
    while away.elapsed() < Duration::from_secs(10) {
        match ask(&mut visitor, "some").0 {
            307 => followed += 1,
            503 => {}
            status => panic!("{status}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    postgres.resume().expect("it starts again");
    until("all clicks are answered", || {
        while ask(&mut visitor, "some").0 == 307 {
            followed += 1;
        }
        followed >= 4_096
    });
    assert_eq!((followed, ask(&mut visitor, "some").0), (4_096, 410));
    server.stop();
}
