//! Conditional writes, and writes that are made only once.

use std::thread;

use bench::postgres::{Durability, Postgres};
use serde_json::{Value, json};

use testkit::until;

use crate::place::{Place, Server, problem, user, value};

on_each_database! {
    reads_are_answered_by_304_where_nothing_changed,
    a_write_of_another_version_changes_nothing,
    a_batch_of_deletions_for_a_version_deletes_nothing,
    a_version_can_be_demanded_of_every_write,
    patches_of_many_clients_at_once_are_all_applied,
    an_email_is_taken_once_whatever_its_case,
    a_request_with_a_key_is_made_once,
    of_many_requests_with_a_key_at_once_one_creates,
    answers_are_forgotten_once_too_much_was_answered_since,
    what_stores_nothing_makes_no_answers_be_forgotten,
    an_answer_is_forgotten_after_a_day_and_many_little_by_little,
}

/// A server and a user's path.
fn start(place: &Place, flags: &[&str]) -> (Server, String) {
    let server = place.serve(flags);
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    (server, format!("/v1/users/{id}"))
}

fn reads_are_answered_by_304_where_nothing_changed(place: &Place) {
    let (server, path) = start(place, &[]);
    for _ in 0..2 {
        for (field, status) in [
            ("If-None-Match: \"1\"", 304),
            ("If-None-Match: W/\"1\"", 304),
            ("If-None-Match: *", 304),
            ("If-None-Match: \"2\", \"1\"", 304),
            ("If-None-Match: \"2\"", 200),
            ("If-Match: \"1\"", 200),
            ("If-Match: \"2\"", 412),
            ("If-Match: 1", 400),
        ] {
            let answer = server.ask("GET", &path, &format!("{field}\r\n"), "");
            assert_eq!(answer.status, status, "{field}");
            assert!(
                status != 304 || answer.body.is_empty() && answer.field("etag").as_deref() == Some("\"1\"")
            );
        }
    }
}

fn a_write_of_another_version_changes_nothing(place: &Place) {
    let (server, path) = start(place, &[]);
    let changed = user("b@example.org");
    let patch = json!({"name": "B"});
    for field in [
        "If-Match: \"2\"",
        "If-Match: W/\"1\"",
        "If-Match: \"x\"",
        "If-Match: \"2\", \"3\"",
        "If-None-Match: *",
    ] {
        let field = format!("{field}\r\n");
        problem(&server.send("PUT", &path, &field, &changed), 412);
        problem(&server.send("PATCH", &path, &field, &patch), 412);
        problem(&server.ask("DELETE", &path, &field, ""), 412);
    }
    problem(&server.send("PUT", &path, "If-Match: 1\r\n", &changed), 400);
    assert_eq!(value(&server.get(&path))["version"], 1);
    assert_eq!(server.send("PUT", &path, "If-Match: \"1\"\r\n", &changed).status, 200);
    assert_eq!(server.send("PATCH", &path, "If-Match: \"1\", \"2\"\r\n", &patch).status, 200);
    assert_eq!(server.ask("DELETE", &path, "If-Match: \"3\"\r\n", "").status, 204);
    problem(&server.ask("DELETE", &path, "If-Match: *\r\n", ""), 404);
}

fn a_batch_of_deletions_for_a_version_deletes_nothing(place: &Place) {
    let (server, path) = start(place, &[]);
    let ids = json!({"ids": [path.rsplit_once('/').expect("an id").1]});
    for (field, status) in [
        ("If-Match: \"1\"", 412),
        ("If-Match: \"2\"", 412),
        ("If-Match: W/\"1\"", 412),
        ("If-Match: \"1\", \"2\"", 412),
        ("If-Match: 1", 400),
    ] {
        problem(&server.send("POST", "/v1/users:batchDelete", &format!("{field}\r\n"), &ids), status);
    }
    assert_eq!(server.get(&path).status, 200);
    assert_eq!(server.send("POST", "/v1/users:batchDelete", "If-Match: *\r\n", &ids).status, 200);
    problem(&server.get(&path), 404);
}

fn a_version_can_be_demanded_of_every_write(place: &Place) {
    let (server, path) = start(place, &["--require-if-match"]);
    problem(&server.send("PUT", &path, "", &user("a@example.org")), 428);
    problem(&server.send("PATCH", &path, "", &json!({})), 428);
    problem(&server.ask("DELETE", &path, "", ""), 428);
    // A condition that excludes versions does not say which version is meant.
    for none in ["If-None-Match: \"9\"\r\n", "If-None-Match: \"abc\"\r\n"] {
        problem(&server.send("PUT", &path, none, &user("a@example.org")), 428);
        problem(&server.send("PATCH", &path, none, &json!({})), 428);
        problem(&server.ask("DELETE", &path, none, ""), 428);
    }
    let ids = json!({"ids": [path.rsplit_once('/').expect("an id").1]});
    problem(&server.send("POST", "/v1/users:batchDelete", "", &ids), 428);
    problem(&server.send("POST", "/v1/users:batchDelete", "If-Match: \"1\"\r\n", &ids), 428);
    assert_eq!(server.send("PATCH", &path, "If-Match: *\r\n", &json!({"name": "B"})).status, 200);
    assert_eq!(server.send("POST", "/v1/users:batchDelete", "If-Match: *\r\n", &ids).status, 200);
}

fn patches_of_many_clients_at_once_are_all_applied(place: &Place) {
    let (server, path) = start(place, &[]);
    thread::scope(|scope| {
        for client in 0..4 {
            let (server, path) = (&server, &path);
            scope.spawn(move || {
                for step in 0..5 {
                    let patch = json!({"preferences": {format!("c{client}.{step}"): step}});
                    // Eight attempts may not suffice against three others; a client then tries again.
                    while server.send("PATCH", path, "", &patch).status == 409 {}
                }
            });
        }
    });
    let user = value(&server.get(&path));
    assert_eq!(user["version"], 21);
    assert_eq!(user["preferences"].as_object().expect("an object").len(), 2 + 20);
}

fn an_email_is_taken_once_whatever_its_case(place: &Place) {
    let (server, path) = start(place, &[]);
    assert_eq!(problem(&server.send("POST", "/v1/users", "", &user("A@Example.org")), 409), ["/email"]);
    server.create("b@example.org");
    assert_eq!(problem(&server.send("PUT", &path, "", &user("B@example.org")), 409), ["/email"]);
    assert_eq!(
        problem(&server.send("PATCH", &path, "", &json!({"email": "b@example.org"})), 409),
        ["/email"]
    );
    assert_eq!(server.send("PUT", &path, "", &user("A@EXAMPLE.org")).status, 200);
}

fn a_request_with_a_key_is_made_once(place: &Place) {
    let server = place.serve(&[]);
    let sent = user("a@example.org");
    let key = "Idempotency-Key: \"8e03978e-40d5\"\r\n";
    let first = server.send("POST", "/v1/users", key, &sent);
    assert_eq!((first.status, first.field("idempotency-replayed")), (201, None));
    // The same key with and without quotes, even after the user has changed.
    let id = value(&first)["id"].as_str().expect("an id").to_owned();
    assert_eq!(server.send("PATCH", &format!("/v1/users/{id}"), "", &json!({"name": "B"})).status, 200);
    for key in [key, "Idempotency-Key: 8e03978e-40d5\r\n"] {
        let again = server.send("POST", "/v1/users", key, &sent);
        assert_eq!((again.status, again.field("idempotency-replayed").as_deref()), (201, Some("true")));
        assert_eq!(again.body, first.body);
        assert_eq!(again.field("location"), first.field("location"));
    }
    problem(&server.send("POST", "/v1/users", key, &user("b@example.org")), 422);
    problem(&server.send("POST", "/v1/users:batchCreate", key, &json!({"users": [sent]})), 422);
    for malformed in ["", "\"", "a b", &"k".repeat(256)] {
        problem(&server.send("POST", "/v1/users", &format!("Idempotency-Key: {malformed}\r\n"), &sent), 400);
    }
    // A repetition does not create the deleted user again, and reveals nothing about it.
    let path = format!("/v1/users/{}", value(&first)["id"].as_str().expect("an id"));
    assert_eq!(server.ask("DELETE", &path, "", "").status, 204);
    let again = server.send("POST", "/v1/users", key, &sent);
    assert!(problem(&again, 409).is_empty() && !again.text().contains("example.org"), "{}", again.text());
    problem(&server.get(&path), 404);
    assert_eq!(value(&server.get("/v1/users:count")), json!({"count": 0}));
}

fn of_many_requests_with_a_key_at_once_one_creates(place: &Place) {
    let server = place.serve(&[]);
    let bodies: Vec<Value> = thread::scope(|scope| {
        let ask =
            || value(&server.send("POST", "/v1/users", "Idempotency-Key: k\r\n", &user("a@example.org")));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert!(bodies[0]["id"].is_string(), "{}", bodies[0]);
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}

fn answers_are_forgotten_once_too_much_was_answered_since(place: &Place) {
    let server = place.serve(&[]);
    let create = |key: &str, email: &str| {
        server.send("POST", "/v1/users", &format!("Idempotency-Key: {key}\r\n"), &user(email))
    };
    assert_eq!(create("first", "a@example.org").status, 201);
    assert_eq!(create("second", "b@example.org").status, 201);
    // Makes it the last of 65,536 blocks of 16 KiB.
    place.execute("UPDATE claims SET seq = 65537 WHERE key = 'second'");
    if place.database().starts_with("postgres:") {
        place.execute("SELECT setval('claims_seq_seq', 65537)");
    }
    assert_eq!(create("third", "c@example.org").status, 201);
    assert_eq!(problem(&create("first", "a@example.org"), 409), ["/email"]);
    for (key, email) in [("second", "b@example.org"), ("third", "c@example.org")] {
        assert_eq!(create(key, email).field("idempotency-replayed").as_deref(), Some("true"), "{key}");
    }
}

fn what_stores_nothing_makes_no_answers_be_forgotten(place: &Place) {
    let server = place.serve(&[]);
    let create = |key: &str, email: &str| {
        server.send("POST", "/v1/users", &format!("Idempotency-Key: {key}\r\n"), &user(email))
    };
    assert_eq!(create("first", "a@example.org").status, 201);
    assert_eq!(create("second", "b@example.org").status, 201);
    // One more block than theirs makes nobody be forgotten, and two make the first.
    place.execute("UPDATE claims SET seq = 65536 WHERE key = 'second'");
    place.execute("UPDATE claims SET seq = 2 WHERE key = 'first'");
    if place.database().starts_with("postgres:") {
        place.execute("SELECT setval('claims_seq_seq', 65536)");
    }
    for _ in 0..2 {
        assert_eq!(create("first", "a@example.org").field("idempotency-replayed").as_deref(), Some("true"));
        problem(&create("first", "c@example.org"), 422);
        assert_eq!(problem(&create("third", "a@example.org"), 409), ["/email"]);
    }
    assert_eq!(create("third", "c@example.org").status, 201);
    for (key, email) in [("first", "a@example.org"), ("second", "b@example.org"), ("third", "c@example.org")]
    {
        assert_eq!(create(key, email).field("idempotency-replayed").as_deref(), Some("true"), "{key}");
    }
}

fn an_answer_is_forgotten_after_a_day_and_many_little_by_little(place: &Place) {
    let server = place.serve(&[]);
    let create = |email: &str| {
        let answer = server.send("POST", "/v1/users", "Idempotency-Key: first\r\n", &user(email));
        (answer.status, answer.field("idempotency-replayed").is_some())
    };
    assert_eq!(create("a@example.org"), (201, false));
    assert_eq!(create("a@example.org"), (201, true));
    place.execute("UPDATE claims SET created_at = 0");
    place.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) \
         INSERT INTO claims (owner, key, digest, answer, created_at) \
         SELECT 1, 'k' || i, digest, answer, 0 FROM n, claims",
    );
    assert_eq!(create("b@example.org"), (201, false));
    assert_eq!(create("b@example.org"), (201, true));
    // A file can be looked into from here.
    if place.database().starts_with("sqlite:") {
        let database = rusqlite::Connection::open(place.path("users.db")).expect("it opens");
        let expired = "SELECT count(*) FROM claims WHERE created_at = 0";
        let expired: u32 = database.query_row(expired, [], |row| row.get(0)).expect("it is read");
        assert_eq!(expired, 200);
    }
}

#[test]
fn a_deletion_finds_stored_answers_by_their_time_in_postgresql() {
    let postgres = Postgres::start(Durability::None, &[]).expect("PostgreSQL starts");
    let place = Place::on(postgres.url("postgres"));
    let (server, path) = start(&place, &[]);
    let sql = |sql: &str| postgres.execute("postgres", sql).expect("PostgreSQL answers");
    let scans = |of: &str| -> u64 { sql(of).trim().parse().expect("a number") };
    let all = || scans("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'claims'");
    let by_time = || scans("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'claims_by_age'");
    sql("INSERT INTO claims (owner, key, digest, answer, created_at) \
         SELECT 0, n, 'd', convert_to(repeat('x', 300), 'UTF8'), n FROM generate_series(1, 20000) AS n");
    sql("ANALYZE claims");
    let before = (by_time(), all());
    assert_eq!(server.ask("DELETE", &path, "", "").status, 204);
    // PostgreSQL counts a second later.
    until("answers are looked up by their time", || by_time() > before.0);
    assert_eq!(all(), before.1, "all of them are read");
}
