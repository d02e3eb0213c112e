//! Access: keys, scopes, rates, origins.

use std::thread;
use std::time::Instant;

use serde_json::json;
use testkit::until;

use crate::client::{Answer, Client};
use crate::place::{Place, Server, ask, problem, user, value};

on_each_database! {
    a_key_allows_what_its_scope_says_until_it_is_revoked,
    however_many_unknown_keys_are_tried_the_database_is_asked_little,
}

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
        // Sends it twice, so that the user is cached the second time.
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
fn an_error_tells_what_a_key_has_left_like_any_answer() {
    let place = Place::new();
    let key = bearer(&place.key("write", &[]));
    let server = place.serve(&["--auth", "keys"]);
    let created = value(&server.send("POST", "/v1/users", &key, &user("a@example.org")));
    let path = format!("/v1/users/{}", created["id"].as_str().expect("an id"));
    // Twice, so that the user is cached the second time.
    for _ in 0..2 {
        let failed = server.ask("GET", &path, &format!("{key}If-Match: \"7\"\r\n"), "");
        problem(&failed, 412);
        assert!(failed.field("ratelimit").is_some() && failed.field("ratelimit-policy").is_some());
        server.ask("GET", &path, &key, "");
    }
    let missing = server.ask("GET", "/v1/users/019aa5a3-7f6e-7000-8000-000000000001", &key, "");
    problem(&missing, 404);
    assert!(missing.field("ratelimit").is_some());
    let misfit = server.send("POST", "/v1/users:validate", &key, &json!({}));
    problem(&misfit, 422);
    assert!(misfit.field("ratelimit").is_some());
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
    // On a slow machine a token is added between two requests, but not each time.
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
        problem(&refused, 403);
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
    // If keys are required, a page may send requests like any other client, but the browser does not show it the
    // answers.
    let key = bearer(&place.key("read", &[]));
    let silent = place.serve(&["--auth", "keys"]);
    let answer = silent.ask("GET", "/v1/users", &format!("{key}{theirs}"), "");
    assert_eq!((answer.status, answer.field("access-control-allow-origin")), (200, None));
}

/// The answer to a request for a host, with its `Host` and perhaps an `Origin`.
fn asked_for(server: &Server, method: &str, host: &str, fields: &str) -> Answer {
    let mut client = server.connect();
    let fields = format!("Host: {host}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n{fields}");
    client.send(format!("{method} /v1/users HTTP/1.1\r\n{fields}\r\n{{}}"));
    client.receive(true).expect("an answer")
}

#[test]
fn without_keys_only_local_names_are_taken() {
    let place = Place::new();
    let server = place.serve(&[]);
    let port = server.public.port();
    for host in ["localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "[::1]", &format!("localhost:{port}")]
    {
        assert_eq!(asked_for(&server, "GET", host, "").status, 200, "{host}");
        assert_eq!(
            asked_for(&server, "GET", host, &format!("Origin: http://{host}\r\n")).status,
            200,
            "{host}"
        );
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0",
        "192.0.2.1",
        "",
        "a b",
    ] {
        for method in ["GET", "POST"] {
            let refused = asked_for(&server, method, host, "");
            assert!(matches!(refused.status, 400 | 403), "{method} {host}: {refused:?}");
        }
    }
    problem(&asked_for(&server, "POST", &format!("evil.example:{port}"), ""), 403);
    for origin in
        ["http://evil.example", "https://localhost.evil.example", "null", "http://localhost.evil:80"]
    {
        for method in ["GET", "POST"] {
            problem(&asked_for(&server, method, "localhost", &format!("Origin: {origin}\r\n")), 403);
        }
    }
    assert_eq!(server.metric("linerate_api_requests_total{operation=\"create\",status=\"2xx\"}"), 0.0);

    let behind = place.serve(&["--allowed-host", "api.example.org"]);
    assert_eq!(
        asked_for(&behind, "GET", "api.example.org", "Origin: https://api.example.org\r\n").status,
        200
    );
    assert_eq!(asked_for(&behind, "GET", "localhost", "").status, 200);
    problem(&asked_for(&behind, "GET", "other.example.org", ""), 403);
    // Whoever opens the service to all accepts any host. If keys are required, only the key matters.
    let open = place.serve(&["--listen", "0.0.0.0:0", "--auth", "none"]);
    assert_eq!(asked_for(&open, "GET", "anything.example", "").status, 200);
    let key = bearer(&place.key("read", &[]));
    let keyed = place.serve(&["--auth", "keys"]);
    assert_eq!(asked_for(&keyed, "GET", "anything.example", &key).status, 200);
}

#[test]
fn the_admin_listener_takes_only_local_names() {
    let place = Place::new();
    place.key("read", &[]);
    // Keys are only for the public listener.
    for flags in [&[][..], &["--auth", "keys"]] {
        let server = place.serve(&[flags, &["--allowed-host", "admin.example.org"]].concat());
        let status = |path: &str, host: &str, origin: &str| {
            let mut client = Client::connect(server.admin);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{origin}\r\n"));
            let answer = client.receive(true).expect("an answer");
            if answer.status == 403 {
                problem(&answer, 403);
            }
            answer.status
        };
        for (path, there) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/missing", 404)] {
            for host in ["localhost", &server.admin.to_string(), "[::1]:1", "admin.example.org"] {
                assert_eq!(status(path, host, ""), there, "{path} {host}");
                assert_eq!(status(path, host, &format!("Origin: http://{host}\r\n")), there, "{path} {host}");
            }
            for host in ["evil.example", &format!("127.0.0.1.evil.example:{}", server.admin.port())] {
                assert_eq!(status(path, host, ""), 403, "{path} {host}");
                let origin = format!("Origin: http://{host}\r\n");
                assert_eq!(status(path, "localhost", &origin), 403, "{path} {host}");
            }
            assert_eq!(status(path, "localhost", "Origin: null\r\n"), 403, "{path}");
        }
    }
    // Whoever lets the admin listener listen elsewhere accepts any host.
    let open = place.serve(&["--admin", "0.0.0.0:0"]);
    let mut client = Client::connect(([127, 0, 0, 1], open.admin.port()).into());
    client.send("GET /metrics HTTP/1.1\r\nHost: anything.example\r\n\r\n");
    assert_eq!(client.receive(true).expect("an answer").status, 200);
}

/// The detail in the answer to a refused request.
fn detail(answer: &Answer) -> String {
    value(answer)["detail"].as_str().expect("a detail").to_owned()
}

#[test]
fn whose_key_does_not_do_is_told_why() {
    let place = Place::new();
    let read = place.key("read", &[]);
    let soon = place.key("read", &["--expires", "1s"]);
    let gone = place.key("read", &[]);
    assert!(place.command(&["key", "rm", "3"]).status.success());
    let server = place.serve(&["--auth", "keys"]);
    let asked = |fields: &str| detail(&server.ask("GET", "/v1/users", fields, ""));
    for (fields, told) in [
        (String::new(), "Authorization: Bearer"),
        (format!("Authorization: {read}\r\n"), "the word Bearer"),
        (format!("Authorization: Basic {read}\r\n"), "the word Bearer"),
        (bearer(&read[..50]), "cut off"),
        (bearer(&gone), "unknown or revoked"),
    ] {
        assert!(asked(&fields).contains(told), "{fields}: {}", asked(&fields));
    }
    until("the key has ended", || server.ask("GET", "/v1/users", &bearer(&soon), "").status == 401);
    assert!(asked(&bearer(&soon)).contains("expired at 20"), "{}", asked(&bearer(&soon)));
    let refused = server.send("POST", "/v1/users", &bearer(&read), &user("a@example.org"));
    assert!(detail(&refused).contains("scope read") && detail(&refused).contains("scope write"));
}

fn however_many_unknown_keys_are_tried_the_database_is_asked_little(place: &Place) {
    let key = bearer(&place.key("read", &["--rate", "0"]));
    let server = place.serve(&["--auth", "keys"]);
    assert_eq!(server.ask("GET", "/v1/users", &key, "").status, 200);
    let (begin, before) = (Instant::now(), server.metric("linerate_api_key_looks_total"));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..25 {
                    let unknown = bearer(api::keys::Secret::generate().expect("randomness").expose());
                    assert_eq!(ask(&mut client, "GET", "/v1/users", &unknown, "").status, 401);
                }
            });
        }
        // A client with a known key never waits.
        for _ in 0..25 {
            assert_eq!(server.ask("GET", "/v1/users", &key, "").status, 200);
        }
    });
    // At most ten looks at once and ten per second, however long this machine took.
    let most = 12.0 + begin.elapsed().as_secs_f64() * 10.0;
    let looks = server.metric("linerate_api_key_looks_total") - before;
    assert!(looks > 0.0 && looks <= most, "{looks} of {most}");
    // A key that was created meanwhile is known at once.
    let made = bearer(&place.key("read", &[]));
    assert_eq!(server.ask("GET", "/v1/users", &made, "").status, 200);
}
