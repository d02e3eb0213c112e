//! Several domains: created, changed and deleted, and keys for some of them.

use links::store::{NewToken, Scope};
use serde_json::{Value, json};
use ureq::SendBody;

use crate::server::{Reply, Server};

/// A server with the domains `a.example` and `b.example`, and a link `one` at each of them and at the default domain.
fn server() -> Server {
    let server = Server::start();
    for host in ["a.example", "b.example"] {
        let reply = server.post("/api/v1/domains", &json!({ "host": host }).to_string());
        assert_eq!((reply.status, reply.header("location")), (201, &*format!("/api/v1/domains/{host}")));
    }
    server.create("one");
    for host in ["a.example", "b.example"] {
        let link = json!({ "domain": host, "code": "one", "target": format!("https://t.example/{host}") });
        let reply = server.post("/api/v1/links", &link.to_string());
        assert_eq!(reply.header("location"), format!("/api/v1/links/one?domain={host}"), "{}", reply.text());
        assert_eq!(reply.json()["short_url"], format!("https://{host}/one"));
    }
    server
}

/// The links in a list, as domain and code.
fn listed(reply: &Reply) -> String {
    let name = |link: &Value| {
        let domain = link["domain"].as_str().unwrap_or("-");
        format!("{domain}/{}", link["code"].as_str().unwrap())
    };
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["links"].as_array().unwrap().iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_domain_lives_from_create_to_delete() {
    let server = Server::start();
    let page = "<p>\u{1}".repeat(16 * 1024);
    let body =
        json!({ "host": "B\u{fc}cher.Example.", "root_target": "https://t.example", "not_found_html": page });
    let created = server.post("/api/v1/domains", &body.to_string());
    assert_eq!(created.status, 201, "{}", created.text());
    let domain = created.json();
    assert_eq!(
        (&domain["host"], &domain["root_target"], &domain["default_target"]),
        (&json!("xn--bcher-kva.example"), &json!("https://t.example/"), &Value::Null)
    );
    let address = "/api/v1/domains/xn--bcher-kva.example";
    assert_eq!(server.get(address).json(), domain);
    assert_eq!(server.get("/api/v1/domains").json(), json!({ "domains": [domain] }));
    server.post("/api/v1/domains", &body.to_string()).problem(409);
    let patch = r#"{"root_target":null,"not_found_html":null,"default_target":"https://t.example/x"}"#;
    let edited = server.ask("PATCH", address, &[], patch).json();
    assert_eq!(
        (&edited["root_target"], &edited["default_target"], &edited["not_found_html"]),
        (&Value::Null, &json!("https://t.example/x"), &Value::Null)
    );
    for (body, status, pointer) in [
        (json!({}), 422, ""),
        (json!({ "host": "192.0.2.1" }), 422, "/host"),
        (json!({ "host": "https://c.example" }), 422, "/host"),
        (json!({ "host": "default" }), 422, "/host"),
        (json!({ "host": "c.example", "root_target": "nowhere" }), 422, "/root_target"),
        (json!({ "host": "c.example", "default_target": "https://c.example/x" }), 422, "/default_target"),
        (json!({ "host": "c.example", "not_found_html": "x".repeat(65_537) }), 422, "/not_found_html"),
        (json!({ "host": "c.example", "colour": 1 }), 422, "/colour"),
    ] {
        let problem = server.post("/api/v1/domains", &body.to_string()).problem(status);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    server.post("/api/v1/domains", &json!({ "host": "x".repeat(600_000) }).to_string()).problem(413);
    assert_eq!(server.ask("DELETE", address, &[], "").status, 204);
    for method in ["GET", "PATCH", "DELETE"] {
        for host in ["xn--bcher-kva.example", "default", "no.example"] {
            let body = if method == "PATCH" { "{}" } else { "" };
            server.ask(method, &format!("/api/v1/domains/{host}"), &[], body).problem(404);
        }
    }
}

#[test]
fn a_domain_with_links_is_deleted_by_force_alone() {
    let server = server();
    server.ask("DELETE", "/api/v1/domains/a.example", &[], "").problem(409);
    server.ask("DELETE", "/api/v1/domains/a.example?force=false", &[], "").problem(409);
    assert_eq!(server.ask("DELETE", "/api/v1/domains/a.example?force=true", &[], "").status, 204);
    assert_eq!(listed(&server.get("/api/v1/links?sort=code")), "-/one b.example/one");
    server.get("/api/v1/links/one?domain=a.example").problem(404);
    assert_eq!(server.get("/api/v1/links/one").status, 200);
}

#[test]
fn links_are_asked_for_by_domain() {
    let server = server();
    let at = |path: &str, domain: &str| format!("/api/v1/{path}?domain={domain}");
    let default = server.get("/api/v1/links/one");
    assert_eq!(
        (&default.json()["domain"], &default.json()["short_url"]),
        (&Value::Null, &json!("https://go.example/one"))
    );
    assert!(
        !default.text().contains("domain"),
        "nothing is told of what nobody needs to know: {}",
        default.text()
    );
    assert_eq!(server.get(&at("links/one", "default")).json(), default.json());
    for (domain, target) in
        [("a.example", "https://t.example/a.example"), ("B.Example", "https://t.example/b.example")]
    {
        assert_eq!(server.get(&at("links/one", domain)).json()["target"], target);
    }
    server.get(&at("links/one", "c.example")).problem(404);
    for (query, expected) in [
        ("sort=code", "-/one a.example/one b.example/one"),
        ("domain=a.example", "a.example/one"),
        ("domain=default", "-/one"),
    ] {
        assert_eq!(listed(&server.get(&format!("/api/v1/links?{query}"))), expected, "{query}");
    }
    let first = server.get("/api/v1/links?sort=code&limit=2");
    let next = first.header("link").trim_start_matches('<').split('>').next().unwrap().to_owned();
    assert_eq!(listed(&server.get(&next)), "b.example/one");

    let code = |path: &str| server.get(path).header("etag").to_owned();
    assert_ne!(
        code("/api/v1/links/one/qr"),
        code(&at("links/one/qr", "a.example")),
        "the host is in the image"
    );
    let edited = server.ask("PATCH", &at("links/one", "a.example"), &[], r#"{"title":"A"}"#);
    assert_eq!(edited.json()["title"], "A");
    assert_eq!(server.get("/api/v1/links/one").json(), default.json());
    for (domain, status) in [("a.example", 204), ("a.example", 404), ("c.example", 404)] {
        assert_eq!(server.ask("DELETE", &at("links/one", domain), &[], "").status, status);
    }
    assert_eq!(server.get(&at("links/one", "b.example")).status, 200);
    for path in ["links/one/stats", "stats"] {
        assert_eq!(server.get(&at(path, "b.example")).json()["clicks"], 0, "{path}");
        server.get(&at(path, "c.example")).problem(404);
    }
    let unknown =
        server.post("/api/v1/links", r#"{"domain":"c.example","target":"https://t.example/"}"#).problem(422);
    assert_eq!(unknown["errors"][0]["pointer"], "/domain");
    let looped = server.post("/api/v1/links", r#"{"target":"https://b.example/one"}"#).problem(422);
    assert_eq!(looped["errors"][0]["pointer"], "/target");
}

#[test]
fn batches_and_files_carry_the_domain() {
    let server = server();
    let links = json!([
        { "domain": "a.example", "code": "x", "target": "https://t.example/" },
        { "code": "x", "target": "https://t.example/" },
        { "domain": "c.example", "code": "x", "target": "https://t.example/" },
        { "domain": "a.example", "code": "x", "target": "https://t.example/" },
    ]);
    let statuses = |reply: Reply| {
        let outcomes = reply.json();
        outcomes
            .as_array()
            .unwrap()
            .iter()
            .map(|outcome| outcome["status"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses(server.post("/api/v1/links/batch", &links.to_string())), [201, 201, 422, 409]);
    let delete = |domain: &str| {
        statuses(server.post(&format!("/api/v1/links/batch-delete?domain={domain}"), r#"["x","y"]"#))
    };
    assert_eq!(delete("a.example"), [204, 404]);
    assert_eq!(server.get("/api/v1/links/x").status, 200);

    let exported = server.get("/api/v1/links/export?format=csv").text();
    assert!(exported.starts_with("domain,code,target,"), "{exported}");
    let of_a = server.get("/api/v1/links/export?format=csv&domain=a.example").text();
    assert!(of_a.contains("a.example,one,") && of_a.lines().count() == 2, "{of_a}");
    let of_default = server.get("/api/v1/links/export?format=json&domain=default").text();
    assert!(!of_default.contains("domain"), "{of_default}");
    let plain = Server::start();
    plain.create("one");
    let exported = plain.get("/api/v1/links/export?format=csv").text();
    assert!(exported.starts_with("code,target,"), "as ever where there is one domain: {exported}");

    let import = |server: &Server, query: &str, csv: &str| {
        server.ask("POST", &format!("/api/v1/links/import{query}"), &[("content-type", "text/csv")], csv)
    };
    let rows = "domain,code,target\n,i,https://t.example/\nb.example,i,https://t.example/\nc.example,i,https://t.example/\n";
    let tally = import(&server, "?domain=a.example", rows).json();
    assert_eq!((&tally["created"], &tally["failed"]), (&json!(2), &json!(1)), "{tally}");
    assert_eq!(listed(&server.get("/api/v1/links?q=i&sort=code")), "a.example/i b.example/i");
    import(&server, "?domain=c.example", rows).problem(404);
}

/// A key only for `a.example` makes every kind of request, at its domain and elsewhere.
#[test]
fn a_key_for_one_domain_has_no_other() {
    let server = server();
    let id = server.store.domains().id(Some("a.example")).unwrap();
    let make = |scope| {
        let new = NewToken { name: "a".to_owned(), scope, domains: Some(vec![id]), expires_at: None };
        server.store.create_token_as(new).wait().unwrap().1
    };
    let (write, read) = (make(Scope::Write), make(Scope::Read));
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let kind = if path.contains("/import") { "text/csv" } else { "application/json" };
        let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
        let headers = if body.is_empty() { &headers[..1] } else { &headers[..] };
        let body = if body.is_empty() {
            SendBody::none()
        } else {
            SendBody::from_owned_reader(std::io::Cursor::new(body.to_owned()))
        };
        server.send(method, &format!("/api/v1/{path}"), headers, body)
    };
    let unchanged = || {
        let links = server.get("/api/v1/links?sort=code").json();
        (links, server.get("/api/v1/domains").json())
    };
    let before = unchanged();
    let link =
        |domain: &str| json!({ "domain": domain, "code": "n", "target": "https://t.example/" }).to_string();
    let elsewhere = ["b.example", "default", "c.example", "B.EXAMPLE."];
    for domain in elsewhere {
        for (method, path, body) in [
            ("GET", "links/one?domain=HOST", ""),
            ("HEAD", "links/one?domain=HOST", ""),
            ("GET", "links?domain=HOST", ""),
            ("GET", "links/one/stats?domain=HOST", ""),
            ("GET", "links/one/qr?domain=HOST", ""),
            ("GET", "stats?domain=HOST", ""),
            ("GET", "links/export?format=csv&domain=HOST", ""),
            ("GET", "links/export?format=json&hashes=true&domain=HOST", ""),
            ("GET", "domains/HOST", ""),
            ("POST", "links", &*link(domain)),
            ("PATCH", "links/one?domain=HOST", r#"{"title":"mine"}"#),
            ("DELETE", "links/one?domain=HOST", ""),
            ("POST", "links/batch-delete?domain=HOST", r#"["one"]"#),
            ("POST", "links/import?domain=HOST", "code,target\nn,https://t.example/\n"),
            ("PATCH", "domains/HOST", r#"{"root_target":"https://t.example/"}"#),
            ("DELETE", "domains/HOST?force=true", ""),
        ] {
            let path = path.replace("HOST", domain);
            let reply = ask(&write, method, &path, body);
            assert_eq!(reply.status, 403, "{method} {path}: {}", reply.text());
            if method != "HEAD" {
                let detail = reply.problem(403)["detail"].to_string();
                // The answer doesn't reveal whether there is such a domain.
                assert_eq!(
                    detail.contains("not for the domain"),
                    !path.starts_with("domains/") || method == "GET",
                    "{detail}"
                );
            }
        }
    }
    // Without a domain, a request means the default domain. For lists, it means all domains that the key is for.
    for (method, path, body) in [
        ("GET", "links/one", ""),
        ("PATCH", "links/one", "{}"),
        ("DELETE", "links/one", ""),
        ("GET", "links/one/stats", ""),
        ("GET", "links/one/qr", ""),
        ("POST", "links", r#"{"code":"n","target":"https://t.example/"}"#),
        ("POST", "links/batch-delete", r#"["one"]"#),
        ("POST", "domains", r#"{"host":"n.example"}"#),
        ("PATCH", "domains/a.example", r#"{"root_target":"https://t.example/"}"#),
        ("DELETE", "domains/a.example?force=true", ""),
    ] {
        ask(&write, method, path, body).problem(403);
    }
    let many = json!([
        { "domain": "b.example", "code": "n", "target": "https://t.example/" },
        { "code": "n", "target": "https://t.example/" },
        { "domain": "a.example", "target": "nowhere" },
    ]);
    let outcomes = ask(&write, "POST", "links/batch", &many.to_string()).json();
    let statuses: Vec<_> =
        outcomes.as_array().unwrap().iter().map(|outcome| outcome["status"].clone()).collect();
    assert_eq!(statuses, [403, 403, 422]);
    let rows = "domain,code,target\nb.example,n,https://t.example/\n,n,https://t.example/\nc.example,n,https://t.example/\n";
    for on_conflict in ["fail", "skip", "replace"] {
        let tally = ask(&write, "POST", &format!("links/import?on_conflict={on_conflict}"), rows).json();
        assert_eq!(
            (&tally["created"], &tally["replaced"], &tally["failed"]),
            (&json!(0), &json!(0), &json!(3))
        );
    }
    assert_eq!(unchanged(), before);

    assert_eq!(listed(&ask(&read, "GET", "links", "")), "a.example/one");
    let hosts = ask(&read, "GET", "domains", "").json();
    assert_eq!(hosts["domains"].as_array().unwrap().len(), 1, "{hosts}");
    let exported = ask(&read, "GET", "links/export?format=csv", "").text();
    assert_eq!((exported.lines().count(), exported.contains("b.example")), (2, false), "{exported}");
    assert_eq!(ask(&read, "GET", "stats", "").json()["clicks"], 0);
    for (method, path, body, status) in [
        ("POST", "links", link("a.example"), 201),
        ("GET", "links/n?domain=a.example", String::new(), 200),
        ("PATCH", "links/n?domain=a.example", "{}".to_owned(), 200),
        ("GET", "links/n/qr?domain=a.example", String::new(), 200),
        ("GET", "domains/a.example", String::new(), 200),
        ("POST", "links/batch-delete?domain=a.example", r#"["n"]"#.to_owned(), 200),
    ] {
        let reply = ask(&write, method, path, &body);
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
    }
    let tally =
        ask(&write, "POST", "links/import?domain=a.example", "code,target\nn,https://t.example/\n").json();
    assert_eq!(tally["created"], 1);
    ask(&read, "POST", "links", &link("a.example")).problem(403);
    // Once its domain is deleted, the key is for no domain, even if the domain is created again.
    assert_eq!(server.ask("DELETE", "/api/v1/domains/a.example?force=true", &[], "").status, 204);
    for _ in 0..2 {
        ask(&write, "GET", "links/one?domain=a.example", "").problem(403);
        assert_eq!(listed(&ask(&write, "GET", "links", "")), "");
        server.post("/api/v1/domains", r#"{"host":"a.example"}"#);
    }
}
