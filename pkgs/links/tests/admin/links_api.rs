//! Creating, reading, editing, deleting and listing.

use std::io::Cursor;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use links::link::LinkPatch;
use links::store::Scope;
use serde_json::{Value, json};
use ureq::SendBody;

use crate::server::Server;

#[test]
fn a_link_lives_from_create_to_delete() {
    let server = Server::start();
    let body = r#"{"target":"https://example.com/a?b","title":"A","tags":["x","b"],"redirect":301,"expires_at":"7d"}"#;
    let created = server.post("/api/v1/links", body);
    assert_eq!(created.status, 201, "{}", created.text());
    let link = created.json();
    let code = link["code"].as_str().unwrap();
    assert_eq!(link["short_url"], format!("https://go.example/{code}"));
    assert_eq!((&link["tags"], &link["redirect"]), (&json!(["b", "x"]), &json!(301)));
    assert!(link.get("id").is_none());

    let address = created.header("location").to_owned();
    assert_eq!(address, format!("/api/v1/links/{code}"));
    let read = server.get(&address);
    assert_eq!((read.status, read.json()), (200, link));
    assert_eq!(read.header("etag"), created.header("etag"));
    assert_eq!(read.header("cache-control"), "no-store");
    assert_eq!(read.header("server"), "");

    for content_type in ["application/merge-patch+json", "application/json; charset=utf-8"] {
        let edited =
            server.ask("PATCH", &address, &[("content-type", content_type)], r#"{"title":null,"tags":[]}"#);
        assert_eq!(edited.status, 200, "{}", edited.text());
        assert_eq!((&edited.json()["title"], &edited.json()["tags"]), (&Value::Null, &json!([])));
        assert_ne!(edited.header("etag"), read.header("etag"));
    }

    let deleted = server.ask("DELETE", &address, &[], "");
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    for method in ["GET", "DELETE"] {
        server.ask(method, &address, &[], "").problem(404);
    }
    server.ask("PATCH", &address, &[], "{}").problem(404);
}

#[test]
fn a_repeat_with_the_same_key_creates_nothing_new() {
    let server = Server::start();
    let keyed =
        |key: &str, body: &str| server.ask("POST", "/api/v1/links", &[("idempotency-key", key)], body);
    let body = r#"{"target":"https://example.com/","expires_at":"7d"}"#;
    let first = keyed("k-1", body);
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, ""));
    let second = keyed("k-1", body);
    assert_eq!((second.status, second.header("idempotent-replayed")), (200, "true"));
    assert_eq!(second.json(), first.json());
    keyed("k-1", r#"{"target":"https://example.org/"}"#).problem(422);
    assert_ne!(keyed("k-2", body).json()["code"], first.json()["code"]);
    for key in ["", "with space", &"k".repeat(256)] {
        keyed(key, body).problem(400);
    }
}

#[test]
fn an_idempotency_key_is_only_known_to_the_client_that_sent_it() {
    let server = Server::start();
    let (_, other) = server.store.create_token("other".to_owned(), Scope::Write).wait().unwrap();
    let keyed = |token: &str, target: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("idempotency-key", "k-1"),
        ];
        let body = Cursor::new(json!({ "target": target }).to_string());
        server.send("POST", "/api/v1/links", &headers, SendBody::from_owned_reader(body))
    };
    let (one, two) = ("https://example.com/", "https://example.org/");
    assert_eq!(keyed(&server.write, one).status, 201);
    let first = keyed(&other, two);
    assert_eq!(first.status, 201, "{}", first.text());
    let again = keyed(&other, two);
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, "true"));
    assert_eq!(again.json(), first.json());
    keyed(&server.write, two).problem(422);
}

#[test]
fn what_is_wrong_with_a_body_is_pointed_at() {
    let server = Server::start();
    server.create("taken");
    for (body, status, pointer) in [
        ("{", 400, Value::Null),
        ("[]x", 422, json!("")),
        ("{}", 422, json!("")),
        (r#"{"target":"https://example.com/","colour":1}"#, 422, json!("/colour")),
        (r#"{"target":5}"#, 422, json!("/target")),
        (r#"{"target":"nowhere"}"#, 422, json!("/target")),
        (r#"{"target":"ftp://example.com/"}"#, 422, json!("/target")),
        (r#"{"target":"https://example.com/","code":"a b"}"#, 422, json!("/code")),
        (r#"{"target":"https://example.com/","code":"API"}"#, 422, json!("/code")),
        (r#"{"target":"https://example.com/","code":"export"}"#, 422, json!("/code")),
        (r#"{"target":"https://example.com/","code":"taken"}"#, 409, json!("/code")),
        (r#"{"target":"https://example.com/","tags":["a b"]}"#, 422, json!("/tags")),
        (r#"{"target":"https://example.com/","redirect":200}"#, 422, json!("/redirect")),
        (r#"{"target":"https://example.com/","expires_at":"soon"}"#, 422, json!("/expires_at")),
        (r#"{"target":"https://example.com/","max_clicks":0}"#, 422, json!("/max_clicks")),
    ] {
        let problem = server.post("/api/v1/links", body).problem(status);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}: {problem}");
    }
    let problem =
        server.ask("PATCH", "/api/v1/links/taken", &[], r#"{"target":null,"status":"gone"}"#).problem(422);
    assert_eq!(problem["errors"][0]["pointer"], "/status");
}

#[test]
fn a_new_password_makes_another_etag_even_within_a_second() {
    let server = Server::start();
    let (address, created, edited) = (0..100)
        .find_map(|number| {
            let link =
                json!({ "code": format!("p{number}"), "target": "https://example.com/", "password": "a" });
            let created = server.post("/api/v1/links", &link.to_string());
            let address = format!("/api/v1/links/p{number}");
            let edited = server.ask("PATCH", &address, &[], r#"{"password":"b"}"#);
            assert_eq!((created.status, edited.status), (201, 200), "{}", edited.text());
            (created.json() == edited.json()).then_some((address, created, edited))
        })
        .expect("both are done within a second");
    assert_ne!(edited.header("etag"), created.header("etag"));
    assert_eq!(server.get(&address).header("etag"), edited.header("etag"));
    let condition = [("if-match", created.header("etag"))];
    server.ask("PATCH", &address, &condition, r#"{"title":"1"}"#).problem(412);
}

#[test]
fn an_edit_on_condition_loses_to_an_edit_in_between_but_not_to_clicks() {
    let server = Server::start();
    server.create("a");
    let address = "/api/v1/links/a";
    let before = server.get(address).header("etag").to_owned();
    let link = server.store.reader().unwrap().get("a").unwrap();
    let click = links::store::Click {
        link: link.id,
        hour: 480_000,
        referrer: 0,
        agent: links::agent::Agent::Bot,
        count: 3,
    };
    let batch = links::store::ClickBatch {
        clicks: vec![click],
        referrers: vec![String::new()],
        ..Default::default()
    };
    server.store.count(batch.into()).wait().unwrap();
    assert_eq!(server.get(address).json()["clicks"], 3);

    let edited = server.ask("PATCH", address, &[("if-match", &before)], r#"{"title":"1"}"#);
    assert_eq!(edited.status, 200, "{}", edited.text());
    server.ask("PATCH", address, &[("if-match", &before)], r#"{"title":"2"}"#).problem(412);
    server.ask("DELETE", address, &[("if-match", &before)], "").problem(412);
    assert_eq!(server.get(address).json()["title"], "1");
    let several = format!("\"x\", {}", edited.header("etag"));
    assert_eq!(server.ask("DELETE", address, &[("if-match", &several)], "").status, 204);
    server.ask("DELETE", address, &[("if-match", "*")], "").problem(404);
}

#[test]
fn the_link_header_leads_through_a_list_without_gap_or_repeat() {
    let server = Server::start();
    for number in 0..7 {
        server.create(&format!("c{number}"));
    }
    server.create("other");
    // The last two queries use the old parameters.
    for (query, sorted) in [
        ("q=COM/C&sort=code", true),
        ("q=COM/C&sort=-code", false),
        // However short the time is, at least one part of the links is examined.
        ("q=COM/C&sort=code&within=1", true),
        ("search=COM/C&sort=code&order=asc", true),
        ("search=COM/C&sort=code&order=desc", false),
    ] {
        let mut codes = Vec::new();
        let mut next = format!("/api/v1/links?{query}&limit=3");
        let mut pages = 0;
        while !next.is_empty() {
            let page = server.get(&next);
            assert_eq!(page.status, 200, "{}", page.text());
            let found = page.json();
            codes.extend(
                found["links"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|link| link["code"].as_str().unwrap().to_owned()),
            );
            let link = page.header("link");
            assert_eq!(link.is_empty(), found["next"].is_null());
            next = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
            pages += 1;
        }
        assert_eq!(pages, 3);
        let mut expected: Vec<_> = (0..7).map(|number| format!("c{number}")).collect();
        if !sorted {
            expected.reverse();
        }
        assert_eq!(codes, expected);
    }
    for query in [
        "within=0",
        "within=2001",
        "limit=0",
        "limit=1001",
        "limit=x",
        "sort=size",
        "order=up",
        "status=gone",
        "cursor=x",
        "colour=1",
    ] {
        server.get(&format!("/api/v1/links?{query}")).problem(400);
    }
    let problem = server.get("/api/v1/links?colour=1").problem(400);
    assert_eq!(
        problem["detail"],
        "there is no parameter \"colour\"; there are limit, cursor, q, tag, status, domain, within, sort"
    );
    let problem = server.get("/api/v1/links?limit=x").problem(400);
    assert_eq!(problem["detail"], "the parameter limit: invalid digit found in string");
    let newest = server.get("/api/v1/links?limit=1").json();
    assert_eq!(newest["links"][0]["code"], "other", "the newest first");
}

#[test]
fn a_batch_tells_what_became_of_each() {
    let server = Server::start();
    server.create("taken");
    let created = server.post(
        "/api/v1/links/batch",
        r#"[{"target":"https://example.com/1","code":"one"},{"target":"https://example.com/2","code":"taken"},
            {"target":"x"},{"target":"https://example.com/3","password":"secret"}]"#,
    );
    assert_eq!(created.status, 200, "{}", created.text());
    let items = created.json();
    let statuses: Vec<_> =
        items.as_array().unwrap().iter().map(|item| item["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 409, 422, 201]);
    assert_eq!(items[0]["link"]["short_url"], "https://go.example/one");
    assert_eq!(items[1]["problem"]["errors"][0]["pointer"], "/code");
    assert_eq!(items[3]["link"]["protected"], true);

    let deleted = server.post("/api/v1/links/batch-delete", r#"["one","none"]"#).json();
    assert_eq!((&deleted[0]["status"], &deleted[1]["status"]), (&json!(204), &json!(404)));
    server.get("/api/v1/links/one").problem(404);

    let wrong = server.post("/api/v1/links/batch", r#"[{"target":"https://example.com/"},{"target":1}]"#);
    assert_eq!(wrong.problem(422)["errors"][0]["pointer"], "/1/target");
    let many = format!("[{}]", vec!["\"a\""; 10_001].join(","));
    server.post("/api/v1/links/batch-delete", &many).problem(413);
}

#[test]
fn a_batch_has_few_passwords_or_is_refused_as_a_whole() {
    let server = Server::start();
    let mut links = vec![json!({ "target": "https://example.com/" })];
    links.resize(102, json!({ "target": "https://example.com/", "password": "secret" }));
    let problem = server.post("/api/v1/links/batch", &json!(links).to_string()).problem(422);
    assert_eq!(problem["errors"][0]["pointer"], "/101/password", "{problem}");
    assert_eq!(server.get("/api/v1/links").json()["links"], json!([]));
}

#[test]
fn a_batch_takes_memory_until_it_is_answered() {
    let server = Server::start();
    server.create("a");
    // Each counts for 10 MB, so six have room. They are refused by the store, but only after what came before.
    let body = format!("[{}]", vec![r#"{"target":""}"#; 10_000].join(","));
    let length = body.len().to_string();
    let batch = || server.ask("POST", "/api/v1/links/batch", &[("content-length", length.as_str())], &body);
    thread::scope(|scope| {
        let (release, held) = channel::<()>();
        // The writer waits here.
        let before = server.store.edit_if("a", LinkPatch::default(), move |_| held.recv().is_ok());
        let (sender, answers) = channel();
        for _ in 0..7 {
            let (sender, batch) = (sender.clone(), &batch);
            scope.spawn(move || sender.send(batch()).expect("it is waited for"));
        }
        drop(sender);
        let refused = answers.recv_timeout(Duration::from_secs(120)).expect("one is refused at once");
        refused.problem(503);
        assert_eq!(refused.header("retry-after"), "1");
        server.post("/api/v1/links", r#"{"target":""}"#).problem(422);
        drop(release);
        assert!(before.wait().is_err());
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [200; 6]);
    });
}

#[test]
fn the_same_is_changed_of_many_links_each_on_its_own_merits() {
    let server = Server::start();
    for code in ["a", "b", "c"] {
        server.create(code);
    }
    // These are as many tags as a link may have.
    let tags: Vec<String> = (0..16).map(|n| format!("t{n}")).collect();
    let patch = json!({ "tags": tags, "not_before": "2029-01-01T00:00:00Z" }).to_string();
    let fields = [("content-type", "application/merge-patch+json")];
    assert_eq!(server.ask("PATCH", "/api/v1/links/c", &fields, &patch).status, 200);
    let edit = |body: Value| server.post("/api/v1/links/batch-edit", &body.to_string());
    let links = json!([{ "code": "a" }, { "code": "none" }, { "code": "b", "domain": "default" },
        { "code": "c" }, { "code": "a", "domain": "none.example" }]);
    let edited = edit(json!({ "links": links, "add_tags": ["new", "x"], "remove_tags": ["x"],
        "set": { "status": "disabled", "expires_at": "2028-01-31" } }));
    assert_eq!(edited.status, 200, "{}", edited.text());
    let edited = edited.json();
    let statuses: Vec<_> =
        edited.as_array().unwrap().iter().map(|outcome| outcome["status"].as_u64().unwrap()).collect();
    // One link would expire before it begins, and one would have too many tags.
    assert_eq!(statuses, [200, 404, 200, 422, 422], "{edited}");
    assert_eq!(edited[4]["problem"]["errors"][0]["pointer"], "/domain");
    for (code, status, tags) in
        [("a", "disabled", json!(["new"])), ("c", "active", json!(tags_sorted(&tags)))]
    {
        let link = server.get(&format!("/api/v1/links/{code}")).json();
        assert_eq!((&link["status"], &link["tags"]), (&json!(status), &tags), "{link}");
    }
    let edited =
        edit(json!({ "links": [{ "code": "c" }], "remove_tags": ["t0", "none"], "add_tags": ["u"] }));
    assert_eq!(edited.json()[0]["status"], 200);
    let found = server.get("/api/v1/links?tag=u").json();
    assert_eq!((&found["links"][0]["code"], found["links"].as_array().unwrap().len()), (&json!("c"), 1));
    assert_eq!(server.get("/api/v1/links?tag=t0").json()["links"], json!([]));
    let one = json!([{ "code": "a" }]);
    for (body, pointer) in [
        (json!({ "links": one, "set": { "tags": ["a"] }, "add_tags": ["b"] }), "/add_tags"),
        (json!({ "links": one, "add_tags": ["no space"] }), "/add_tags"),
        (json!({ "links": one, "remove_tags": [""] }), "/remove_tags"),
        (json!({ "links": one, "set": { "target": "x" } }), "/target"),
        (json!({ "links": one, "set": { "code": "x" } }), "/set/code"),
        (json!({ "links": ["a"], "add_tags": ["b"] }), "/links/0"),
    ] {
        let problem = edit(body.clone()).problem(422);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}: {problem}");
    }
    edit(json!({ "links": one })).problem(422);
    edit(json!({ "links": vec![json!({ "code": "a" }); 10_001], "add_tags": ["b"] })).problem(413);
}

/// The tags in the order in which a link has them.
fn tags_sorted(tags: &[String]) -> Vec<String> {
    let mut tags = tags.to_vec();
    tags.sort();
    tags
}

#[test]
fn a_closed_store_reads_but_says_so_to_writers() {
    let server = Server::start();
    server.create("a");
    server.store.close();
    server.post("/api/v1/links", r#"{"target":"https://example.com/"}"#).problem(503);
    assert_eq!(server.get("/api/v1/links/a").status, 200);
}
