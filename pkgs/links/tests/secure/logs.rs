//! The access log and the audit log of links, and request ids.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{logged, until};

use crate::client::{Secure, Version, ask_one, form, metric, request};
use crate::http::Client;

#[test]
fn visits_are_logged_by_whatever_they_come_and_passwords_are_not() {
    let secure = Secure::new();
    let log = secure.directory.path().join("access.log");
    let server = secure.serve(&["--access-log", log.to_str().expect("UTF-8")]);
    assert_eq!(server.api().create("abc", "https://t.example/").expect("an answer"), 201);
    let locked = json!({ "code": "locked", "target": "https://t.example/", "password": "right" });
    assert_eq!(server.api().add(&locked).expect("an answer"), 201);
    for version in Version::ALL {
        let fields = ["user-agent: te\"st", "referer: https://r/p?token=1"];
        assert_eq!(ask_one(&server, version, request("GET", "/abc?q=secret", &fields)).status, 307);
        let missing = ask_one(&server, version, request("GET", "/missing", &["accept: */*"]));
        let page = ask_one(&server, version, request("GET", "/missing-page", &["accept: text/html"]));
        assert_eq!((missing.status, page.status), (404, 404), "{version:?}");
        let problem: Value = serde_json::from_str(&missing.body).expect("JSON");
        let id = missing.field("x-request-id").expect("an id");
        assert_eq!((&problem["request_id"], &problem["status"]), (&id.into(), &404.into()), "{version:?}");
        let unlocked = ask_one(&server, version, form("/locked", &[], "password=right"));
        assert_eq!(unlocked.status, 303, "{version:?}");
        let of = |path: &str| {
            let mut lines = Vec::new();
            until("its line", || {
                let (http, tls) = match version {
                    Version::Plain => ("1.1", Value::Null),
                    Version::Http1 => ("1.1", "1.3".into()),
                    Version::Http2 => ("2", "1.3".into()),
                    Version::Http3 => ("3", "1.3".into()),
                };
                lines = logged(&log);
                lines.retain(|line| line["path"] == path && line["http"] == http && line["tls"] == tls);
                !lines.is_empty()
            });
            assert_eq!(lines.len(), 1, "{version:?} {lines:?}");
            lines.remove(0)
        };
        let line = of("/abc");
        assert_eq!(
            (&line["status"], &line["method"], &line["bytes"]),
            (&307.into(), &"GET".into(), &0.into())
        );
        assert_eq!((&line["agent"], &line["referrer"]), (&"te\"st".into(), &"https://r/p".into()), "{line}");
        assert_eq!((&line["client"], &line["kind"]), (&"127.0.0.1".into(), &"access".into()), "{line}");
        assert!(line["host"].is_string() && line["duration"].as_f64() < Some(60.0), "{line}");
        let line = of("/missing");
        assert_eq!((&line["id"], &line["bytes"]), (&id.into(), &missing.body.len().into()), "{line}");
        assert_eq!(of("/missing-page")["id"].as_str(), page.field("x-request-id"));
        assert_eq!(of("/locked")["status"], 303);
    }
    // Operators' requests are logged too, with the id of their token.
    let lines = logged(&log);
    let created = lines.iter().find(|line| line["path"] == "/api/v1/links").expect("a line");
    assert_eq!((&created["status"], &created["method"]), (&201.into(), &"POST".into()));
    assert!(created["key"].is_i64() && created["bytes"].as_u64() > Some(0), "{created}");
    let text = fs::read_to_string(&log).expect("a log");
    for secret in ["right", "secret", "token=", "lr_"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let moved = secure.directory.path().join("access.log.1");
    fs::rename(&log, &moved).expect("it is there");
    server.signal(Signal::HUP);
    until("a new log", || log.exists());
    assert_eq!(metric(&server, &["linerate_links_access_log_dropped_total"]), 0.0);
    server.stop();
}

#[test]
fn bytes_that_are_no_request_do_nothing_to_a_line_and_one_in_so_many_is_logged() {
    let secure = Secure::new();
    let log = secure.directory.path().join("access.log");
    let flags = ["--workers", "1", "--access-log", log.to_str().expect("UTF-8"), "--access-log-sample", "4"];
    let server = secure.serve(&flags);
    let mut client = server.connect();
    for _ in 0..12 {
        client.send("GET /none HTTP/1.1\r\nHost: h\r\nUser-Agent: a\"}\x1b\x7f\r\n\r\n").expect("it reads");
        assert!(matches!(client.receive().expect("an answer").status, 400 | 404));
        client = server.connect();
    }
    until("one line in four", || logged(&log).len() == 3);
    assert_eq!(logged(&log)[0]["path"], "/none");
    server.stop();
}

#[test]
fn each_write_of_a_token_has_a_line_with_the_etags_from_before_and_after() {
    let secure = Secure::new();
    let log = secure.directory.path().join("audit.log");
    let server = secure.serve(&["--audit-log", log.to_str().expect("UTF-8")]);
    let etag = |code: &str| -> String {
        let answer = server.api().ask("GET", &format!("/{code}"), "").expect("an answer");
        assert_eq!(answer.status, 200);
        answer.field("etag").expect("an ETag").trim_matches('"').to_owned()
    };
    let mut api = server.api();
    assert_eq!(api.create("abc", "https://t.example/").expect("an answer"), 201);
    let first = etag("abc");
    assert_eq!(api.edit("abc", &json!({"title": "Another"})).expect("an answer"), 200);
    let second = etag("abc");
    // A refused request is not logged.
    assert_eq!(api.create("abc", "https://t.example/").expect("an answer"), 409);
    assert_eq!(api.edit("nobody", &json!({"title": "x"})).expect("an answer"), 404);
    assert_eq!(api.delete("abc").expect("an answer"), 204);
    let batch = json!([{"code": "b1", "target": "https://t.example/"}, {"code": "b1", "target": "https://t.example/"}]);
    assert_eq!(api.ask("POST", "/batch", &batch.to_string()).expect("an answer").status, 200);
    let third = etag("b1");
    assert_eq!(api.ask("POST", "/batch-delete", "[\"b1\",\"nobody\"]").expect("an answer").status, 200);
    let rows = r#"[{"code":"i1","target":"https://t.example/"},{"code":"i2","target":"https://t.example/"}]"#;
    assert_eq!(api.ask("POST", "/import?format=json", rows).expect("an answer").status, 200);
    let refused = api.ask("GET", "/nobody", "").expect("an answer");
    let problem: Value = serde_json::from_slice(&refused.body).expect("JSON");
    assert_eq!(refused.value("x-request-id"), problem["request_id"].as_str());
    assert!(refused.status == 404 && problem["request_id"].is_string());
    server.stop();

    let text = fs::read_to_string(&log).expect("a log");
    assert!(!text.contains("lr_") && !text.contains("t.example"), "{text}");
    let found = logged(&log);
    assert_eq!(found.len(), 6, "{text}");
    for (line, (action, target, before, after, count)) in found.iter().zip([
        ("link.create", Some("abc"), None, Some(&first), 1),
        ("link.edit", Some("abc"), Some(&first), Some(&second), 1),
        ("link.delete", Some("abc"), Some(&second), None, 1),
        ("link.create", Some("b1"), None, Some(&third), 1),
        ("link.delete", Some("b1"), Some(&third), None, 1),
        ("links.import", None, None, None, 2),
    ]) {
        assert_eq!((&line["action"], &line["target"]), (&action.into(), &target.into()), "{line}");
        assert_eq!((&line["kind"], &line["count"]), (&"audit".into(), &count.into()), "{line}");
        // An ETag is the first 24 digits of the digest.
        for (side, etag) in [("before", before), ("after", after)] {
            let digest = line[side].as_str().map(|digest| &digest["sha256:".len()..][..24]);
            assert_eq!(digest, etag.map(String::as_str), "{side}: {line}");
        }
        assert!(line["key"].is_i64() && line["name"] == "console", "{line}");
        assert_eq!(
            (&line["client"], line["id"].as_str().map(str::len)),
            (&"127.0.0.1".into(), Some(32)),
            "{line}"
        );
    }
}

#[test]
fn a_write_whose_client_leaves_has_its_line_too() {
    let secure = Secure::new();
    let log = secure.directory.path().join("audit.log");
    let server = secure.serve(&["--audit-log", log.to_str().expect("UTF-8")]);
    let send = |path: &str, media_type: &str, length: usize, body: &str| {
        let mut client = Client::connect(server.admin).expect("it listens");
        client
            .send(format!(
                "POST /api/v1/links{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
                 Content-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n{body}",
                server.token
            ))
            .expect("it reads");
    };
    let rows: String = (0..1_000).map(|n| format!("c{n},https://t.example/\n")).collect();
    let rows = format!("code,target\n{rows}");
    send("/import", "text/csv", 2 * rows.len(), &rows);
    until("a line of the import", || logged(&log).len() == 1);
    assert_eq!(server.api().ask("GET", "/c999", "").expect("an answer").status, 200);

    // Nor is the line lost if the server is told to stop meanwhile.
    let rival = rusqlite::Connection::open(&secure.place.database).expect("it opens");
    rival.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let link = json!({ "code": "late", "target": "https://t.example/" }).to_string();
    send("", "application/json", link.len(), &link);
    until("the write waits", || metric(&server, &["linerate_links_write_queue_depth"]) > 0.0);
    server.terminate();
    server.wait_for_log("stopping");
    std::thread::sleep(Duration::from_millis(500));
    rival.execute_batch("ROLLBACK").expect("it ends");
    assert_eq!(server.wait(Duration::from_secs(60)).code(), Some(0));
    let found = logged(&log);
    let said: Vec<_> = found.iter().map(|line| (&line["action"], &line["target"], &line["count"])).collect();
    assert_eq!(
        said,
        [
            (&"links.import".into(), &Value::Null, &1_000.into()),
            (&"link.create".into(), &"late".into(), &1.into()),
        ]
    );
}

#[test]
fn a_domain_that_is_deleted_in_part_has_a_line() {
    let secure = Secure::new();
    let log = secure.directory.path().join("audit.log");
    let server = secure.serve(&["--audit-log", log.to_str().expect("UTF-8")]);
    let mut api = server.api();
    let made = api.ask_domains("POST", "", r#"{"host":"go.example"}"#).expect("an answer");
    assert_eq!(made.status, 201);
    // More than are deleted at once, and the last of them cannot be deleted.
    let rows: Vec<_> = (0..2_001)
        .map(
            |n| json!({ "code": format!("c{n:04}"), "target": "https://t.example/", "domain": "go.example" }),
        )
        .collect();
    let rows = json!(rows).to_string();
    assert_eq!(api.ask("POST", "/import?format=json", &rows).expect("an answer").status, 200);
    let fault = "CREATE TRIGGER fault BEFORE DELETE ON links WHEN old.code = 'c2000' \
         BEGIN SELECT raise(ABORT, 'a fault'); END";
    let database = rusqlite::Connection::open(&secure.place.database).expect("it opens");
    database.execute_batch(fault).expect("it is made");
    let deleted = api.ask_domains("DELETE", "/go.example?force=true", "").expect("an answer");
    assert_eq!(deleted.status, 500, "{}", deleted.text());
    assert_eq!(api.ask("GET", "/c0000?domain=go.example", "").expect("an answer").status, 404);
    server.stop();
    let found = logged(&log);
    let line = found.last().expect("a line");
    assert_eq!((&line["action"], &line["target"]), (&"domain.delete".into(), &"go.example".into()), "{line}");
    assert!(line["before"].is_string() && line["before"] == line["after"], "it is still there: {line}");
}

#[test]
fn writes_of_a_domain_and_of_its_links_say_which_domain() {
    let secure = Secure::new();
    let log = secure.directory.path().join("audit.log");
    let server = secure.serve(&["--audit-log", log.to_str().expect("UTF-8")]);
    let mut api = server.api();
    let made = api.ask_domains("POST", "", r#"{"host":"go.example"}"#).expect("an answer");
    assert_eq!(made.status, 201);
    let edited = api.ask_domains("PATCH", "/go.example", r#"{"root_target":"https://t.example/"}"#);
    assert_eq!(edited.expect("an answer").status, 200);
    let link = |code: &str| json!({ "code": code, "target": "https://t.example/", "domain": "go.example" });
    assert_eq!(api.add(&link("a")).expect("an answer"), 201);
    assert_eq!(api.ask("PATCH", "/a?domain=go.example", r#"{"title":"x"}"#).expect("an answer").status, 200);
    assert_eq!(api.ask("DELETE", "/a?domain=go.example", "").expect("an answer").status, 204);
    let batch = json!([link("b")]).to_string();
    assert_eq!(api.ask("POST", "/batch", &batch).expect("an answer").status, 200);
    let deleted = api.ask("POST", "/batch-delete?domain=go.example", r#"["b"]"#);
    assert_eq!(deleted.expect("an answer").status, 200);
    assert_eq!(api.ask_domains("DELETE", "/go.example", "").expect("an answer").status, 204);
    server.stop();

    let found = logged(&log);
    let said: Vec<_> = found
        .iter()
        .map(|line| {
            let has = |side: &str| line[side].is_string();
            (
                line["action"].as_str().expect("text"),
                line["target"].as_str().expect("text"),
                has("before"),
                has("after"),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("domain.create", "go.example", false, true),
            ("domain.edit", "go.example", true, true),
            ("link.create", "go.example/a", false, true),
            ("link.edit", "go.example/a", true, true),
            ("link.delete", "go.example/a", true, false),
            ("link.create", "go.example/b", false, true),
            ("link.delete", "go.example/b", true, false),
            ("domain.delete", "go.example", true, false),
        ]
    );
    assert_eq!(found[0]["after"], found[1]["before"], "nothing came in between");
}

#[test]
fn without_a_log_errors_have_ids_and_a_trusted_proxys_is_taken_over() {
    let secure = Secure::new();
    for (flags, taken) in [(&[][..], false), (&["--trusted-proxy", "127.0.0.1"], true)] {
        let server = secure.serve(flags);
        for path in ["/none", "/%6eone"] {
            let mut client = server.connect();
            client
                .send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nX-Request-Id: from-proxy\r\n\r\n"))
                .expect("it reads");
            let answer = client.receive().expect("an answer");
            let problem: Value = serde_json::from_slice(&answer.body).expect("JSON");
            let id = answer.value("x-request-id").expect("an id");
            assert_eq!((problem["request_id"].as_str(), answer.status), (Some(id), 404));
            assert_eq!(id == "from-proxy", taken, "{flags:?} {path}: {id}");
        }
        let mut admin = Client::connect(server.admin).expect("it listens");
        let refused = admin.request("GET", "/none", "X-Request-Id: x\r\n", "").expect("an answer");
        assert!(refused.field("x-request-id").is_some_and(|id| id.len() == 32), "{refused:?}");
        server.stop();
    }
}
