//! The JSON API, with its own PostgreSQL.

use bench::postgres::{Durability, Postgres};
use bench::server::Server;
use ladder::api::{STAGES, database};
use serde_json::{Value, json};

use crate::{ask, header, start};

const JSON: &str = "application/json";

/// Axum's limit, in bytes (docs.rs/axum, `extract::DefaultBodyLimit`).
const BODY_LIMIT: usize = 2 << 20;

/// What is compared.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    media_type: String,
    body: Option<Value>,
}

fn answer(server: &Server, method: &str, path: &str, media_type: &str, body: &[u8]) -> Answer {
    let mut response = ask(server, method, path, media_type, body);
    let text = response.body_mut().read_to_vec().expect("a body");
    Answer {
        status: response.status().as_u16(),
        media_type: header(&response, "content-type"),
        body: (!text.is_empty()).then(|| serde_json::from_slice(&text).expect("a body is JSON")),
    }
}

/// A PostgreSQL with the table, and all stages using it.
fn stages() -> (Postgres, Vec<Server>) {
    let postgres = Postgres::start(Durability::None, &[]).expect("PostgreSQL starts");
    // Statements in one string run in one transaction, in which nothing can be vacuumed.
    for statement in database::schema().split_inclusive(";\n") {
        postgres.execute("postgres", statement).expect("the schema is SQL");
    }
    let url = postgres.url("postgres");
    let start = |(stage, number): (&ladder::stage::Stage, usize)| start("api", number, stage.name, &url);
    let servers = STAGES.iter().zip(1..).map(start).collect();
    (postgres, servers)
}

#[test]
fn all_stages_answer_alike() {
    let (_postgres, servers) = stages();
    let document = database::document();
    let with = |from: &str, to: &str| {
        let changed = document.replacen(from, to, 1);
        assert_ne!(changed, document, "{from} is in it");
        changed.into_bytes()
    };
    let mut not_utf8 = document.clone().into_bytes();
    let place = document.find("paper").expect("it is in it");
    not_utf8[place] = 0xff;
    // Too long by one byte, so that nothing is left unread when it is refused.
    let too_long = with("Wrote", &"x".repeat(BODY_LIMIT + 1 + "Wrote".len() - document.len()));
    let post = [
        (200, JSON, document.clone().into_bytes()),
        (200, "Application/JSON; charset=utf-8", document.clone().into_bytes()),
        (200, JSON, format!(" \n{document}\t ").into_bytes()),
        (200, JSON, with("notes", "\\u00c9l\\u00c8ve \\\"\\\\\\n\\ud83d\\ude00")),
        (200, JSON, with("notes", "ÉLÈVE 😀")),
        (200, JSON, with("97.25", "97")),
        (200, JSON, with("97.25", "-0.1e-7")),
        (200, JSON, with("{", "{\"unknown\":[{}],")),
        (400, JSON, Vec::new()),
        (400, JSON, b"{}".to_vec()),
        (400, JSON, b"[1,2".to_vec()),
        (400, JSON, format!("{document}x").into_bytes()),
        (400, JSON, document.as_bytes()[..document.len() - 1].to_vec()),
        (400, JSON, with("\"age\":36", "\"age\":\"36\"")),
        (400, JSON, with("\"age\":36", "\"age\":-1")),
        (400, JSON, with("\"age\":36", "\"age\":36.5")),
        (400, JSON, with("\"age\":36,", "")),
        (400, JSON, with("\"age\":36", "\"age\":36,\"age\":36")),
        (400, JSON, with("97.25", "1e400")),
        (400, JSON, with("97.25", "NaN")),
        (400, JSON, with("notes", "\n")),
        (400, JSON, with("notes", "\\x")),
        (400, JSON, with("notes", "\\ud800")),
        (400, JSON, not_utf8),
        (413, JSON, too_long),
        (415, "", document.clone().into_bytes()),
        (415, "text/plain", document.clone().into_bytes()),
    ];
    let get = [
        (200, "/users/1"),
        (200, "/users/10000"),
        (404, "/users/10001"),
        (404, "/users/0"),
        (404, "/users/-1"),
        (400, "/users/x"),
        (400, "/users/99999999999999999999"),
        (405, "/users"),
        (404, "/"),
    ];
    let (first, others) = servers.split_first().expect("there are eight");
    for (status, media_type, body) in &post {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]);
        let expected = answer(first, "POST", "/users", media_type, body);
        assert_eq!(expected.status, *status, "{media_type} {shown}");
        for server in others {
            let found = answer(server, "POST", "/users", media_type, body);
            assert_eq!(found, expected, "{}: {media_type} {shown}", server.name());
        }
    }
    for (status, path) in get {
        let expected = answer(first, "GET", path, "", b"");
        assert_eq!(expected.status, status, "{path}");
        for server in others {
            assert_eq!(answer(server, "GET", path, "", b""), expected, "{}: {path}", server.name());
        }
    }
}

#[test]
fn the_last_stage_says_what_the_first_was_written_to_say() {
    let (_postgres, servers) = stages();
    let last = servers.last().expect("there are eight");
    let sent: Value = serde_json::from_str(&database::document()).expect("it is JSON");

    let accepted = answer(last, "POST", "/users", JSON, sent.to_string().as_bytes());
    let mut user = sent.clone();
    user["email"] = json!("ada.lovelace@example.com");
    user["tags"][0] = json!("mathematics");
    user["tags"][3] = json!("bernoulli");
    let roles = ["author:notes", "translator:memoirs", "correspondent:letters", "reviewer:engines"];
    assert_eq!(accepted.body, Some(json!({ "tag_count": 8, "roles": roles, "user": user })));

    let found = answer(last, "GET", "/users/7", "", b"");
    let mut user = sent;
    user["id"] = json!(7);
    let expected = json!({
        "id": 7, "email": "user7@example.com", "name": "User 7", "created_at": 1_763_683_207, "user": user,
    });
    assert_eq!(found, Answer { status: 200, media_type: JSON.into(), body: Some(expected) });

    let problem = answer(last, "GET", "/users/x", "", b"");
    assert_eq!(problem.media_type, "application/problem+json");
    assert_eq!(problem.body.expect("a problem")["status"], 400);
}
