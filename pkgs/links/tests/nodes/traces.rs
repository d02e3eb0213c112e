//! If configured, PostgreSQL gets the traces of recorded requests, and no others. PostgreSQL's own log shows it: the
//! log has a statement before the statement is answered.

use std::collections::BTreeSet;

use bench::postgres::{Durability, Postgres};
use serde_json::json;

use crate::http::Client;
use crate::server::{Place, Server};

/// The text before and after a trace in a statement.
const BEFORE: &str = "/*traceparent='";
const BEHIND: &str = "'*/";

/// A statement from the log: the whole message, with its parameters.
struct Statement {
    text: String,
    trace: Option<String>,
}

/// Statements since the start.
fn statements(postgres: &Postgres) -> Vec<Statement> {
    let log = postgres.logged().expect("a log");
    let messages = log.split("LOG:  ").filter(|message| message.starts_with("execute "));
    let statement = |message: &str| {
        let rest = message.split_once(BEFORE).map(|(_, rest)| rest);
        let trace = rest.map(|rest| rest.split_once(BEHIND).expect("a comment ends").0.to_owned());
        Statement { text: message.to_owned(), trace }
    };
    messages.map(statement).collect()
}

/// The traces in the log, each once.
fn told(postgres: &Postgres) -> BTreeSet<String> {
    statements(postgres).into_iter().filter_map(|statement| statement.trace).collect()
}

/// A trace with a number, which no other has.
fn trace(number: usize, flags: &str) -> String {
    format!("00-4bf92f3577b34da6a3ce9{number:011x}-00f067{number:010x}-{flags}")
}

/// A PostgreSQL that logs each statement, and a server that uses it.
fn start(flags: &[&str]) -> (Postgres, Place, Server) {
    let postgres = Postgres::start(Durability::None, &["log_statement=all"]).expect("PostgreSQL starts");
    let place = Place::at(postgres.url("postgres"));
    let server = place.serve(&[&["--workers", "1"], flags].concat());
    (postgres, place, server)
}

/// The answer to a request with a trace.
fn ask(client: &mut Client, (method, path): (&str, &str), fields: &str, body: &str, trace: &str) -> u16 {
    let fields = format!("{fields}traceparent: {trace}\r\n");
    client.request(method, path, &fields, body).expect("an answer").status
}

#[test]
fn postgresql_is_told_the_traces_that_are_recorded_where_that_is_asked_for() {
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for asked in [true, false] {
        let flags: &[&str] = if asked { &["--trace-database", "--cache-bytes", "0"] } else { &[] };
        let (postgres, _place, server) = start(flags);
        let (mut visitor, mut operator) =
            (server.connect(), Client::connect(server.admin).expect("it listens"));
        let key = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", server.token);
        let link = |code: &str, more: serde_json::Value| {
            let mut link = json!({ "code": code, "target": "https://t.example/" });
            link.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            link.to_string()
        };
        let locked = link("lock", json!({ "password": "p" }));
        let limited = link("limited", json!({ "max_clicks": 5 }));
        let plain = link("plain", json!({}));
        let patch = json!({ "title": "another" }).to_string();
        let api = "/api/v1/links";
        let mut number = 0;
        let mut expected = BTreeSet::new();
        // A link is requested after it is created.
        for (to, method, path, fields, body, status) in [
            (1, "POST", api, &*key, &*plain, 201),
            (1, "POST", api, &key, &locked, 201),
            (1, "POST", api, &key, &limited, 201),
            (1, "GET", "/api/v1/links/plain", &key, "", 200),
            (1, "GET", "/api/v1/links?limit=1", &key, "", 200),
            (1, "GET", "/api/v1/links/plain/stats", &key, "", 200),
            (1, "PATCH", "/api/v1/links/plain", &key, &patch, 200),
            (0, "GET", "/plain", "", "", 307),
            (0, "GET", "/none", "", "", 404),
            (0, "GET", "/limited", "", "", 307),
            (0, "POST", "/lock", form, "password=p", 303),
            (1, "DELETE", "/api/v1/links/plain", &key, "", 204),
        ] {
            for flags in ["00", "01"] {
                // Each write is sent only once.
                if flags == "00" && !matches!(method, "GET") {
                    continue;
                }
                number += 1;
                let (client, trace) =
                    (if to == 1 { &mut operator } else { &mut visitor }, trace(number, flags));
                assert_eq!(ask(client, (method, path), fields, body, &trace), status, "{method} {path}");
                if flags == "01" && asked {
                    expected.insert(trace);
                }
                assert_eq!(told(&postgres), expected, "after {method} {path} {flags}");
            }
        }
        // A malformed trace is not passed on either, whatever it contains.
        for value in ["'*/; DROP TABLE links; --", &trace(99, "01").replace("-00f067", "-XXf067"), "01"] {
            assert_eq!(ask(&mut visitor, ("GET", "/none"), "", "", value), 404, "{value}");
        }
        assert_eq!(told(&postgres), expected);
        server.stop();
    }
}

#[test]
fn a_read_that_tells_of_a_trace_shares_its_question_with_no_other() {
    const CODES: usize = 120;
    let (postgres, _place, server) = start(&["--trace-database"]);
    // A third of the requests has a recorded trace, a third has one that isn't recorded, and a third has none. All are
    // sent before any is answered.
    let trace_of = |number: usize| trace(number, if number.is_multiple_of(3) { "01" } else { "00" });
    let mut clients: Vec<Client> = (0..CODES).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let field =
            if number % 3 == 2 { String::new() } else { format!("traceparent: {}\r\n", trace_of(number)) };
        client
            .send(format!("GET /code-{number} HTTP/1.1\r\nHost: s.example\r\n{field}\r\n"))
            .expect("it reads");
    }
    for client in &mut clients {
        assert_eq!(client.receive().expect("an answer").status, 404);
    }
    let statements = statements(&postgres);
    for number in 0..CODES {
        let of_code = format!("/code-{number}");
        // The code ends where the statement's text or its list continues with another character.
        let names = |statement: &Statement| {
            let mut found = statement.text.match_indices(&of_code);
            found.any(|(at, _)| {
                !statement.text[at + of_code.len()..].starts_with(|next: char| next.is_ascii_digit())
            })
        };
        let reads: Vec<&Statement> = statements.iter().filter(|statement| names(statement)).collect();
        assert!(!reads.is_empty(), "{number} is not read");
        for read in reads {
            let expected = number.is_multiple_of(3).then(|| trace_of(number));
            assert_eq!(read.trace, expected, "{}", read.text);
            // A statement with a trace differs each time, so it isn't prepared under a name.
            assert_eq!(read.text.starts_with("execute <unnamed>: "), expected.is_some(), "{}", read.text);
            assert!(expected.is_none() || !read.text.contains("unnest"), "{}", read.text);
        }
    }
    server.stop();
}
