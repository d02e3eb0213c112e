//! One user: created, read, replaced, patched, deleted.

use serde_json::{Value, json};

use crate::place::{Place, ask, problem, user, value};

on_each_database! {
    a_user_is_created_read_replaced_patched_and_deleted,
    what_is_wrong_with_a_body_is_pointed_at,
    unknown_members_are_kept_where_that_is_wanted,
    a_document_is_checked_without_being_stored,
    what_would_be_too_long_to_patch_is_not_stored,
    methods_media_types_and_paths_that_are_not_there_are_told,
}

fn a_user_is_created_read_replaced_patched_and_deleted(place: &Place) {
    let server = place.serve(&[]);
    let sent = user("ada@example.org");
    let answer = server.send("POST", "/v1/users", "", &sent);
    assert_eq!((answer.status, answer.field("etag").as_deref()), (201, Some("\"1\"")), "{answer:?}");
    let created = value(&answer);
    let path = format!("/v1/users/{}", created["id"].as_str().expect("an id"));
    assert_eq!(answer.field("location").as_deref(), Some(path.as_str()));
    assert_eq!(created["version"], 1);
    assert_eq!(created["status"], "active");
    for (name, member) in sent.as_object().expect("an object") {
        assert_eq!(&created[name], member, "{name}");
    }

    // The first read comes from the database, the second from the cache.
    for _ in 0..2 {
        let answer = server.get(&path);
        assert_eq!((answer.status, answer.field("etag").as_deref()), (200, Some("\"1\"")));
        assert_eq!(answer.field("content-type").as_deref(), Some("application/json"));
        assert_eq!(value(&answer), created);
        let head = server.ask("HEAD", &path, "", "");
        assert_eq!(head.status, 200);
        assert_eq!(head.field("content-length"), Some(answer.body.len().to_string()));
    }

    let mut other = sent.clone();
    other["name"] = json!("Ada");
    other["tags"] = json!([]);
    let answer = server.send("PUT", &path, "", &other);
    assert_eq!((answer.status, answer.field("etag").as_deref()), (200, Some("\"2\"")), "{answer:?}");
    let replaced = value(&answer);
    assert_eq!((&replaced["name"], &replaced["id"]), (&json!("Ada"), &created["id"]));
    assert_eq!(replaced.get("tags"), None);
    assert_eq!(replaced["created_at"], created["created_at"]);
    assert_eq!(value(&server.get(&path)), replaced);

    let patch = json!({"profile": {"bio": null, "family_name": "L"}, "status": "suspended", "preferences": {"mail": null}});
    let fields = "Content-Type: application/merge-patch+json\r\n";
    let answer = server.ask("PATCH", &path, fields, &patch.to_string());
    assert_eq!((answer.status, answer.field("etag").as_deref()), (200, Some("\"3\"")), "{answer:?}");
    let patched = value(&answer);
    assert_eq!(
        patched["profile"],
        json!({"given_name": "Ada", "birth_date": "1815-12-10", "family_name": "L"})
    );
    assert_eq!(patched["preferences"], json!({"theme": "dark"}));
    assert_eq!(value(&server.get(&path)), patched);
    let refused = server.ask("PATCH", &path, fields, r#"{"profile":{"phone":"1"},"id":"x","name":null}"#);
    assert_eq!(problem(&refused, 422), ["/name", "/profile/phone", "/id"]);

    let answer = server.ask("DELETE", &path, "", "");
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    for method in ["GET", "DELETE"] {
        problem(&server.ask(method, &path, "", ""), 404);
    }
    problem(&server.send("PUT", &path, "", &sent), 404);
    assert_eq!(server.metric("linerate_api_requests_total{operation=\"create\",status=\"2xx\"}"), 1.0);
}

fn what_is_wrong_with_a_body_is_pointed_at(place: &Place) {
    let server = place.serve(&[]);
    let json = "Content-Type: application/json\r\n";
    let ask = |body: &str| server.ask("POST", "/v1/users", json, body);
    let fields =
        [("/email", json!("no")), ("/name", json!(1)), ("/tags", json!(["a", "a"])), ("/more", json!({}))];
    let body: Value = fields.iter().map(|(name, value)| (name[1..].to_owned(), value.clone())).collect();
    assert_eq!(problem(&ask(&body.to_string()), 422), ["/email", "/name", "/tags/1", "/more"]);
    for body in ["", "{", "nope", "{\"a\":1}x", "[1,]", "\"\\ud800\""] {
        assert_eq!(problem(&ask(body), 400), Vec::<String>::new(), "{body}");
    }
    assert_eq!(problem(&ask(&format!("{}1{}", "[".repeat(40), "]".repeat(40))), 422), ["/0".repeat(16)]);
    assert_eq!(problem(&ask(r#"{"name":"a","name":"b"}"#), 422), ["/name"]);
    problem(&ask(&format!("\"{}\"", "a".repeat(70_000))), 413);
    problem(&server.ask("POST", "/v1/users", "Content-Type: text/plain\r\n", "{}"), 415);
    problem(&server.ask("POST", "/v1/users", "", "{}"), 415);
    let packed = server.ask("POST", "/v1/users", &format!("{json}Content-Encoding: gzip\r\n"), "{}");
    problem(&packed, 415);
    assert_eq!(packed.field("accept-encoding").as_deref(), Some("identity"));
    // A body without an announced length is limited too.
    let mut client = server.connect();
    client.send(format!(
        "POST /v1/users HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{json}\r\n"
    ));
    let chunk = "a".repeat(40_000);
    client.send(format!("9c40\r\n{chunk}\r\n9c40\r\n{chunk}\r\n0\r\n\r\n"));
    problem(&client.receive(true).expect("an answer"), 413);
}

fn unknown_members_are_kept_where_that_is_wanted(place: &Place) {
    let server = place.serve(&["--unknown-fields", "keep"]);
    let mut sent = user("a@example.org");
    sent["extra"] = json!({"deep": [1, {"x": null}]});
    sent["profile"]["nick"] = json!("A");
    let created = value(&server.send("POST", "/v1/users", "", &sent));
    assert_eq!((&created["extra"], &created["profile"]["nick"]), (&sent["extra"], &json!("A")));
    sent["id"] = json!("x");
    assert_eq!(problem(&server.send("POST", "/v1/users", "", &sent), 422), ["/id"]);
}

fn what_would_be_too_long_to_patch_is_not_stored(place: &Place) {
    let server = place.serve(&["--max-user-bytes", "1024"]);
    let path = format!("/v1/users/{}", server.create("b@example.org")["id"].as_str().expect("an id"));
    // The status is stored even if it is not sent.
    let of = |bytes: usize| {
        let user =
            |bio: usize| json!({"email": "a@example.org", "name": "A", "profile": {"bio": "b".repeat(bio)}});
        user(bytes - user(0).to_string().len())
    };
    let stored = r#","status":"active""#.len();
    for (method, path) in [("POST", "/v1/users:validate"), ("POST", "/v1/users"), ("PUT", &*path)] {
        problem(&server.send(method, path, "", &of(1024)), 413);
    }
    let answer = server.send("PUT", &path, "", &of(1024 - stored));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(server.send("PATCH", &path, "", &json!({"name": "B"})).status, 200);
}

fn a_document_is_checked_without_being_stored(place: &Place) {
    let server = place.serve(&[]);
    let sent = user("a@example.org");
    let answer = server.send("POST", "/v1/users:validate", "", &sent);
    assert_eq!(answer.status, 200);
    let mut expected = sent;
    expected["status"] = json!("active");
    assert_eq!(value(&answer), expected);
    assert_eq!(value(&server.get("/v1/users:count")), json!({"count": 0}));
    assert_eq!(
        problem(&server.send("POST", "/v1/users:validate", "", &json!({"name": "a"})), 422),
        ["/email"]
    );
}

fn methods_media_types_and_paths_that_are_not_there_are_told(place: &Place) {
    let server = place.serve(&[]);
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    let one = format!("/v1/users/{id}");
    for (method, path, allow) in [
        ("DELETE", "/v1/users", "POST,GET,HEAD"),
        ("POST", one.as_str(), "GET,HEAD,PUT,PATCH,DELETE"),
        ("GET", "/v1/users:validate", "POST"),
        ("TRACE", "/v1/users:count", "GET,HEAD"),
    ] {
        let mut allowed: Vec<_> = allow.split(',').collect();
        allowed.sort_unstable();
        for method in [method, "OPTIONS"] {
            let answer = server.ask(method, path, "", "");
            let field = answer.field("allow").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
            let mut told: Vec<_> =
                field.split(',').map(str::trim).filter(|method| *method != "OPTIONS").collect();
            told.sort_unstable();
            assert_eq!(told, allowed, "{method} {path}");
            match method {
                "OPTIONS" => assert_eq!(answer.status, 204),
                _ => drop(problem(&answer, 405)),
            }
        }
    }
    for path in [
        "/v1",
        "/v1/users/",
        "/v1/users/x",
        "/v1/users:x",
        "/v1/users/00000000000000000000000000000000",
        "/v2",
    ] {
        problem(&server.get(path), 404);
    }
    problem(&server.ask("GET", &one, "Accept: image/png\r\n", ""), 406);
    // The cache answers in the same way.
    assert_eq!(server.get(&one).status, 200);
    problem(&server.ask("GET", &one, "Accept: image/png\r\n", ""), 406);
    assert_eq!(server.ask("GET", &one, "Accept: text/xml, application/*;q=0.5\r\n", "").status, 200);
    // One connection handles them all.
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(ask(&mut client, "GET", &one, "", "").status, 200);
        assert_eq!(ask(&mut client, "GET", "/v1/users/x", "", "").status, 404);
    }
}
