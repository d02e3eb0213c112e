//! An export whose client reads slowly.

use std::net::TcpStream;

use bench::postgres::Durability;
use serde_json::json;
use testkit::until;

use crate::http::Client;
use crate::server::alone;
use crate::{PATIENCE, node, start};

/// Links of 7 KB each: more than fits into all buffers between the database and a client.
const LINKS: usize = 6_000;

#[test]
fn an_export_that_is_not_read_holds_no_snapshot_and_then_goes_on() {
    let _alone = alone();
    let (postgres, place) = start(Durability::None);
    let server = node(&place, &[]);
    let links = format!(
        "INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, updated_at) \
         SELECT 0, 'c' || n, 'https://t.example/' || repeat('x', 7000), '{{}}', 0, 307, false, 0, 0 \
         FROM generate_series(1, {LINKS}) AS n"
    );
    postgres.execute("postgres", &links).expect("they are new");
    let stream = TcpStream::connect(server.admin).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it has timeouts");
    let mut client = Client::on(stream.try_clone().expect("another handle"));
    let head = format!(
        "GET /api/v1/links/export?format=csv HTTP/1.1\r\nHost: s.example\r\nAuthorization: Bearer {}\r\n\r\n",
        server.token
    );
    client.send(head).expect("it reads");
    // More than the head has come, so it is under way. Nothing is read from here on.
    until("it has begun", || stream.peek(&mut [0; 1024]).expect("it answers") == 1024);
    until("no snapshot is held", || {
        let held = "SELECT count(*) FROM pg_stat_activity \
             WHERE application_name LIKE 'linerate-links%' AND backend_xmin IS NOT NULL";
        postgres.execute("postgres", held).expect("it answers").trim() == "0"
    });
    let mut api = server.api();
    let (last, gone) = (format!("c{LINKS}"), format!("c{}", LINKS - 1));
    assert_eq!(api.edit(&last, &json!({ "target": "https://t.example/new" })).expect("an answer"), 200);
    assert_eq!(api.delete(&gone).expect("an answer"), 204);
    assert_eq!(api.create("later", "https://t.example/").expect("an answer"), 201);

    let answer = client.receive().expect("all of it");
    assert_eq!(answer.status, 200);
    let rows: Vec<&str> = answer.text().lines().skip(1).collect();
    let codes: Vec<&str> = rows.iter().filter_map(|row| row.split(',').next()).collect();
    let expected: Vec<String> = (1..=LINKS).map(|n| format!("c{n}")).filter(|code| *code != gone).collect();
    assert!(codes == expected, "{} links", codes.len());
    let edited = format!("{last},https://t.example/new,");
    assert!(rows.last().is_some_and(|row| row.starts_with(&edited)), "each is as it was when it was read");
}
