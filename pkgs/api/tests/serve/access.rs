//! Who may ask: keys, scopes, rates, origins.

use crate::place::{Place, problem, until, user, value};

on_each_database! { a_key_allows_what_its_scope_says_until_it_is_revoked }

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

#[test]
fn without_keys_a_server_starts_on_loopback_alone() {
    let place = Place::new();
    let (code, said) = place.refused(&["--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("linerate-api key add") && said.lines().count() == 1, "{said}");
    let (code, _) = place.refused(&["--listen", "127.0.0.1:0,[::]:0"]);
    assert_eq!(code, Some(2));
    let (code, _) = place.refused(&["--listen", "127.0.0.1:0", "--auth", "keys"]);
    assert_eq!(code, Some(2));
    assert_eq!(place.serve(&[]).get("/v1/users").status, 200);
    assert_eq!(
        place.serve(&["--listen", &format!("unix:{}", place.path("s").display())]).get("/v1/users").status,
        200
    );
    assert_eq!(place.serve(&["--listen", "0.0.0.0:0", "--auth", "none"]).get("/v1/users").status, 200);
    place.key("read", &[]);
    problem(&place.serve(&["--listen", "0.0.0.0:0"]).get("/v1/users"), 401);
}

fn a_key_allows_what_its_scope_says_until_it_is_revoked(place: &Place) {
    let (read, write) = (place.key("read", &[]), place.key("write", &["--rate", "0"]));
    let server = place.serve(&["--auth", "keys"]);
    let body = user("a@example.org");
    let create = |fields: &str| server.send("POST", "/v1/users", fields, &body);
    let refused = create(&bearer(&read));
    problem(&refused, 403);
    assert!(refused.field("www-authenticate").expect("a challenge").contains("insufficient_scope"));
    let created = create(&bearer(&write));
    assert_eq!(created.status, 201);
    assert_eq!(created.field("ratelimit"), None);
    let path = format!("/v1/users/{}", value(&created)["id"].as_str().expect("an id"));

    let mut mistyped = read.clone();
    mistyped.replace_range(10..11, if &mistyped[10..11] == "0" { "1" } else { "0" });
    for (fields, challenge) in [
        (String::new(), "Bearer"),
        ("Authorization: Basic YTpi\r\n".to_owned(), "Bearer error=\"invalid_token\""),
        (bearer("lrk_0"), "Bearer error=\"invalid_token\""),
        (bearer(&mistyped), "Bearer error=\"invalid_token\""),
    ] {
        // Twice, so that the user is cached.
        for _ in 0..2 {
            let answer = server.ask("GET", &path, &fields, "");
            problem(&answer, 401);
            assert_eq!(answer.field("www-authenticate").as_deref(), Some(challenge), "{fields}");
        }
    }
    for _ in 0..3 {
        let answer = server.ask("GET", &path, &bearer(&read), "");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("ratelimit-policy").as_deref(), Some("\"key\";q=100;w=1"));
    }
    for path in ["/", "/openapi.json"] {
        assert_eq!(server.get(path).status, 200, "{path} is for everybody");
    }
    problem(&server.send("POST", "/v1/users:validate", "", &body), 401);
    assert_eq!(server.send("POST", "/v1/users:validate", &bearer(&read), &body).status, 200);

    let list = String::from_utf8(place.command(&["key", "list"]).stdout).expect("text");
    assert!(list.contains("read") && list.contains("write") && !list.contains("lrk_"), "{list}");
    let revoked = place.command(&["key", "rm", "1"]);
    assert!(revoked.status.success());
    assert_eq!(place.command(&["key", "rm", "1"]).status.code(), Some(2));
    until("the key is revoked", || server.ask("GET", &path, &bearer(&read), "").status == 401);
    assert_eq!(server.ask("GET", &path, &bearer(&write), "").status, 200);
}

#[test]
fn a_key_that_asks_too_often_is_told_when_to_come_again() {
    let place = Place::new();
    let key = bearer(&place.key("write", &["--rate", "1", "--burst", "3"]));
    let server = place.serve(&["--auth", "keys"]);
    let body = user("a@example.org");
    let created = server.send("POST", "/v1/users", &key, &body);
    assert_eq!(created.field("ratelimit-policy").as_deref(), Some("\"key\";q=3;w=3"));
    let path = format!("/v1/users/{}", value(&created)["id"].as_str().expect("an id"));
    let mut answer = server.ask("GET", &path, &key, "");
    // On a slow machine a token drops in between two requests, but not each time.
    until("the key is used too often", || {
        answer = server.ask("GET", &path, &key, "");
        answer.status == 429
    });
    problem(&answer, 429);
    assert_eq!(answer.field("retry-after").as_deref(), Some("1"));
    assert!(answer.field("ratelimit").expect("a limit").starts_with("\"key\";r=0;t="));
}

#[test]
fn a_key_ends_when_it_was_told_to() {
    let place = Place::new();
    let later = bearer(&place.key("read", &["--expires", "1h"]));
    let soon = bearer(&place.key("read", &["--expires", "2s"]));
    let server = place.serve(&["--auth", "keys"]);
    until("the key has ended", || server.ask("GET", "/v1/users", &soon, "").status == 401);
    assert_eq!(server.ask("GET", "/v1/users", &later, "").status, 200);
    assert_eq!(
        place.command(&["key", "add", "x", "--expires", "2001-01-01T00:00:00Z"]).status.code(),
        Some(2)
    );
}

#[test]
fn pages_of_other_origins_may_ask_where_that_is_wanted() {
    let place = Place::new();
    let server = place.serve(&["--cors-origin", "https://app.example"]);
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/users/{id}");
    let (ours, theirs) = ("Origin: https://app.example\r\n", "Origin: https://evil.example\r\n");
    for path in [path.as_str(), path.as_str(), "/v1/users", "/v1/users/x"] {
        let allowed = server.ask("GET", path, ours, "");
        assert_eq!(
            allowed.field("access-control-allow-origin").as_deref(),
            Some("https://app.example"),
            "{path}"
        );
        assert!(allowed.field("access-control-expose-headers").expect("some").contains("etag"));
        let refused = server.ask("GET", path, theirs, "");
        assert_eq!(refused.field("access-control-allow-origin"), None);
        assert_eq!(refused.field("vary").as_deref(), Some("origin"));
    }
    let preflight = |origin| {
        server.ask("OPTIONS", &path, &format!("{origin}Access-Control-Request-Method: PATCH\r\n"), "")
    };
    let answer = preflight(ours);
    assert_eq!(answer.status, 204);
    assert!(answer.field("access-control-allow-methods").expect("methods").contains("PATCH"));
    assert!(answer.field("access-control-allow-headers").expect("fields").contains("if-match"));
    assert_eq!(preflight(theirs).field("access-control-allow-methods"), None);
    let silent = Place::new();
    assert_eq!(
        silent.serve(&[]).ask("GET", "/v1/users", ours, "").field("access-control-allow-origin"),
        None
    );
}
