//! The access log, the audit log, request ids and traces.

use std::fs;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use bench::postgres::{Durability, Postgres};
use bytes::Bytes;
use http::{Method, Request};
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{logged, until};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::client::Answer;
use crate::place::{Place, Server, ask, problem, user, value};

on_each_database! {
    each_write_has_a_line_with_who_wrote_and_digests_of_what_get_sends,
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

/// The id of an error, in its header and in its body.
fn told_id(answer: &Answer, status: u16) -> String {
    problem(answer, status);
    let id = answer.field("x-request-id").expect("a field");
    assert_eq!(value(answer)["request_id"], Value::from(id.as_str()));
    id
}

#[test]
fn requests_are_logged_with_their_ids_and_keys_and_nothing_secret() {
    let place = Place::new();
    let (read, write) = (place.key("read", &[]), place.key("write", &[]));
    let log = place.path("access.log");
    let server = place.serve(&["--auth", "keys", "--access-log", log.to_str().expect("text")]);
    let created = server.send("POST", "/v1/users", &bearer(&write), &user("a@example.org"));
    assert_eq!(created.status, 201);
    assert_eq!(created.field("x-request-id"), None, "it is for errors");
    let path = created.field("location").expect("where it is");
    let fields = format!(
        "{}User-Agent: te\"st\r\nReferer: https://r/p?token=1\r\ntraceparent: {TRACE}\r\n",
        bearer(&read)
    );
    assert_eq!(server.ask("GET", &format!("{path}?fields=id"), &fields, "").status, 200);
    assert_eq!(server.ask("GET", &path, &bearer(&read), "").status, 200);
    // The log has this order, since each request is answered before the next is sent.
    let missing = told_id(&server.ask("GET", "/v1/users/none", &bearer(&read), ""), 404);
    let denied = told_id(&server.ask("DELETE", &path, &bearer(&read), ""), 403);
    let unknown = told_id(&server.ask("GET", &path, "Authorization: Bearer lrk_0\r\n", ""), 401);
    let nowhere = told_id(&server.get("/none"), 404);
    let malformed = {
        let mut client = server.connect();
        client.send(b"GET /\x1b[2J\xff\",\"status\":200} HTTP/1.1\r\nHost: localhost\r\n\r\n".as_slice());
        told_id(&client.receive(true).expect("an answer"), 400)
    };
    until("all lines", || logged(&log).len() == 8);
    let text = fs::read_to_string(&log).expect("a log");
    assert!(!text.contains("lrk_") && !text.contains("token"), "{text}");

    let lines = logged(&log);
    let find =
        |id: &str| lines.iter().find(|line| line["id"] == id).unwrap_or_else(|| panic!("{id}: {text}"));
    for (id, method, status, key) in [
        (&missing, "GET", 404, Some(1)),
        (&denied, "DELETE", 403, Some(1)),
        (&unknown, "GET", 401, None),
        (&nowhere, "GET", 404, None),
    ] {
        let line = find(id);
        assert_eq!((&line["method"], &line["status"]), (&method.into(), &status.into()), "{line}");
        assert_eq!((&line["kind"], &line["key"]), (&"access".into(), &key.into()), "{line}");
        assert_eq!((&line["client"], &line["host"]), (&"127.0.0.1".into(), &"localhost".into()), "{line}");
        assert_eq!((&line["http"], &line["tls"]), (&"1.1".into(), &Value::Null), "{line}");
        assert!(line["bytes"].as_u64() > Some(0) && line["duration"].as_f64() < Some(60.0), "{line}");
    }
    assert_eq!(find(&malformed)["path"], "/\\x1b[2J\\xff\",\"status\":200}");
    let write = lines.iter().find(|line| line["method"] == "POST").expect("the write");
    assert_eq!((&write["key"], &write["status"]), (&2.into(), &201.into()));
    assert_eq!(write["bytes"], Value::from(created.body.len()));
    let traced = lines.iter().find(|line| !line["trace"].is_null()).expect("the one with a trace");
    assert_eq!(traced["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!((&traced["path"], &traced["agent"]), (&path.as_str().into(), &"te\"st".into()));
    assert_eq!((&traced["referrer"], &traced["key"]), (&"https://r/p".into(), &1.into()));
}

#[test]
fn one_in_so_many_is_logged_and_a_renamed_log_is_made_anew() {
    let place = Place::new();
    let log = place.path("access.log");
    let server = place.serve(&["--access-log", log.to_str().expect("text"), "--access-log-sample", "5"]);
    let mut client = server.connect();
    (0..20).for_each(|_| assert_eq!(ask(&mut client, "GET", "/v1/users", "", "").status, 200));
    until("one line in five", || logged(&log).len() == 4);
    let moved = place.path("access.log.1");
    fs::rename(&log, &moved).expect("it is there");
    server.signal(Signal::HUP);
    until("a new log", || log.exists());
    (0..10).for_each(|_| assert_eq!(ask(&mut client, "GET", "/v1/users", "", "").status, 200));
    drop(client);
    // The requests of the last moment are logged nevertheless.
    server.signal(Signal::TERM);
    assert!(server.wait(Duration::from_secs(120)).success());
    assert_eq!((logged(&moved).len(), logged(&log).len()), (4, 2));
}

#[test]
fn without_a_log_errors_have_ids_all_the_same() {
    let place = Place::new();
    for (flags, taken) in [(&[][..], false), (&["--trusted-proxy", "127.0.0.1"], true)] {
        let server = place.serve(flags);
        let id = told_id(&server.get("/none"), 404);
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_ne!(told_id(&server.get("/none"), 404), id);
        let given = told_id(&server.ask("GET", "/none", "X-Request-Id: from-proxy\r\n", ""), 404);
        assert_eq!(given == "from-proxy", taken, "{flags:?}: {given}");
        let odd = told_id(&server.ask("GET", "/none", "X-Request-Id: no \"good\"\r\n", ""), 404);
        assert_eq!(odd.len(), 32, "{odd}");
        let head = server.ask("HEAD", "/none", "", "");
        assert!(head.status == 404 && head.field("x-request-id").is_some());
        assert_eq!(server.get("/v1/users").field("x-request-id"), None);
    }
}

#[test]
fn a_log_that_cannot_be_made_is_said_on_one_line_and_a_full_disk_stops_nobody() {
    let place = Place::new();
    for flag in ["--access-log", "--audit-log"] {
        let (code, said) = place.refused(&["--listen", "127.0.0.1:0", flag, "/nowhere/log"]);
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
    }
    let server = place.serve(&["--access-log", "/dev/full", "--audit-log", "/dev/full"]);
    server.create("a@example.org");
    until("a line is dropped", || server.metric("linerate_api_access_log_dropped_total") >= 1.0);
    assert_eq!(server.metric("linerate_api_audit_lines_total"), 1.0);
    assert_eq!(server.get("/v1/users").status, 200);
    server.signal(Signal::TERM);
    assert!(server.wait(Duration::from_secs(120)).success());
}

/// The digest of a user as GET sends it.
fn digest(server: &Server, path: &str, key: &str) -> Value {
    let answer = server.ask("GET", path, &bearer(key), "");
    assert_eq!(answer.status, 200);
    let digits: String = Sha256::digest(&answer.body).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}").into()
}

fn each_write_has_a_line_with_who_wrote_and_digests_of_what_get_sends(place: &Place) {
    let key = place.key("write", &["--rate", "0"]);
    let log = place.path("audit.log");
    let server = place.serve(&["--auth", "keys", "--audit-log", log.to_str().expect("text")]);
    let send = |method: &str, target: &str, body: &Value| -> Answer {
        server.send(method, target, &bearer(&key), body)
    };
    let created = send("POST", "/v1/users", &user("a@example.org"));
    assert_eq!(created.status, 201);
    let path = created.field("location").expect("where it is");
    let mut states = vec![Value::Null, digest(&server, &path, &key)];
    assert_eq!(send("PUT", &path, &user("b@example.org")).status, 200);
    states.push(digest(&server, &path, &key));
    assert_eq!(send("PATCH", &path, &json!({"name": "Another"})).status, 200);
    states.push(digest(&server, &path, &key));
    // A refused request writes nothing, and neither does reading.
    problem(&send("POST", "/v1/users", &user("b@example.org")), 409);
    problem(&send("PATCH", &path, &json!({"email": 1})), 422);
    problem(&server.ask("DELETE", "/v1/users/00000000-0000-7000-8000-000000000000", &bearer(&key), ""), 404);
    assert_eq!(server.ask("DELETE", &path, &bearer(&key), "").status, 204);
    states.push(Value::Null);
    let many = send(
        "POST",
        "/v1/users:batchCreate",
        &json!({"users": [user("c@example.org"), user("d@example.org")]}),
    );
    assert_eq!(many.status, 201);
    let ids: Vec<Value> =
        value(&many)["users"].as_array().expect("two").iter().map(|user| user["id"].clone()).collect();
    let sums: Vec<Value> = ids
        .iter()
        .map(|id| digest(&server, &format!("/v1/users/{}", id.as_str().expect("an id")), &key))
        .collect();
    assert_eq!(send("POST", "/v1/users:batchDelete", &json!({"ids": ids})).status, 200);
    server.signal(Signal::TERM);
    assert!(server.wait(Duration::from_secs(120)).success());

    let text = fs::read_to_string(&log).expect("a log");
    assert!(!text.contains("lrk_") && !text.contains("example.org"), "{text}");
    let lines = logged(&log);
    assert_eq!(lines.len(), 8, "{text}");
    let id = path.rsplit('/').next().expect("an id");
    let actions = ["user.create", "user.replace", "user.patch", "user.delete"];
    for (index, (line, action)) in lines.iter().zip(actions).enumerate() {
        assert_eq!((&line["kind"], &line["action"]), (&"audit".into(), &action.into()), "{line}");
        assert_eq!((&line["before"], &line["after"]), (&states[index], &states[index + 1]), "{line}");
        assert_eq!((&line["target"], &line["count"]), (&id.into(), &1.into()), "{line}");
        assert_eq!((&line["key"], &line["name"]), (&1.into(), &"test".into()), "{line}");
        assert_eq!(
            (&line["client"], line["id"].as_str().map(str::len)),
            (&"127.0.0.1".into(), Some(32)),
            "{line}"
        );
    }
    for (line, (id, sum)) in lines[4..6].iter().zip(ids.iter().zip(&sums)) {
        assert_eq!((&line["action"], &line["target"]), (&"user.create".into(), id), "{line}");
        assert_eq!((&line["before"], &line["after"]), (&Value::Null, sum), "{line}");
    }
    for line in &lines[6..] {
        let at = ids.iter().position(|id| *id == line["target"]).expect("one of those");
        assert_eq!((&line["action"], &line["before"]), (&"user.delete".into(), &sums[at]), "{line}");
    }
}

#[test]
fn a_write_whose_client_leaves_has_a_line_once_it_is_committed() {
    let place = Place::new();
    let log = place.path("audit.log");
    let server = place.serve(&["--h2c", "--audit-log", log.to_str().expect("text")]);
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    // No write is committed for now.
    let holder = Connection::open(place.path("users.db")).expect("it opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let reads = || {
        let metric = |name: &str| server.metric(&format!("linerate_api_cache_{name}_total"));
        metric("hits") + metric("misses")
    };
    let before = reads();
    replace_and_leave(&server, &format!("/v1/users/{id}"), || {
        until("the user is read for the conditions", || reads() > before);
        // The write is next.
        thread::sleep(Duration::from_millis(500));
    });
    let mut client = server.connect();
    let body = user("c@example.org").to_string();
    let head = "POST /v1/users HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    client.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
    client.stream.shutdown(Shutdown::Write).expect("it is open");
    assert!(client.is_closed());
    // The service does not end before both are logged.
    server.signal(Signal::TERM);
    holder.execute_batch("ROLLBACK").expect("it writes nothing");
    assert!(server.wait(Duration::from_secs(120)).success());
    let written = holder.query_row("SELECT count(*), sum(version) FROM users", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    });
    assert_eq!(written.expect("it is read"), (2, 3), "two were created and one replaced");
    let mut actions: Vec<Value> = logged(&log).iter().map(|line| line["action"].clone()).collect();
    actions.sort_by_key(Value::to_string);
    assert_eq!(actions, ["user.create", "user.create", "user.replace"]);
}

#[test]
fn a_write_that_waits_in_postgresql_has_a_line_even_if_the_service_is_told_to_end() {
    let postgres = Postgres::start(Durability::None, &[]).expect("PostgreSQL starts");
    let place = Place::on(postgres.url("postgres"));
    let log = place.path("audit.log");
    // It waits for as long as the rest of this takes.
    let patience = ["--database-timeout", "60000"];
    let server =
        place.serve(&[&["--h2c", "--audit-log", log.to_str().expect("text")][..], &patience].concat());
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    let sql = |sql: &str| postgres.execute("postgres", sql).expect("PostgreSQL answers");
    let has_waiting = |event: &str| {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = '{event}'");
        sql(&count).trim() == "1"
    };
    thread::scope(|scope| {
        // It is cancelled below.
        let hold = "SELECT 1 FROM users FOR UPDATE; SELECT pg_sleep(600)";
        scope.spawn(|| postgres.execute("postgres", hold).expect_err("it does not end by itself"));
        until("the user is locked", || has_waiting("Timeout"));
        let path = format!("/v1/users/{id}");
        replace_and_leave(&server, &path, || until("the write waits", || has_waiting("Lock")));
        server.signal(Signal::TERM);
        // Meanwhile the listener ends, since it has no client.
        thread::sleep(Duration::from_secs(1));
        sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    });
    assert!(server.wait(Duration::from_secs(120)).success());
    assert_eq!(sql("SELECT version FROM users").trim(), "2", "it is replaced");
    let actions: Vec<Value> = logged(&log).iter().map(|line| line["action"].clone()).collect();
    assert_eq!(actions, ["user.create", "user.replace"]);
}

/// Replaces a user over HTTP/2, and resets the stream once the service has `begun` to, which is waited for.
fn replace_and_leave(server: &Server, path: &str, begun: impl FnOnce()) {
    let request = |method: Method| {
        let request = Request::builder().method(method).uri(format!("http://localhost{path}"));
        request.header("content-type", "application/json").header("if-match", "\"1\", \"7\"")
    };
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let stream = TcpStream::connect(server.public).await.expect("it listens");
        let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        let mut sender = sender.ready().await.expect("it takes requests");
        let put = request(Method::PUT).body(()).expect("a request");
        let (_response, mut stream) = sender.send_request(put, false).expect("it is open");
        let body = Bytes::from(user("b@example.org").to_string());
        stream.send_data(body, true).expect("it is open");
        begun();
        stream.send_reset(h2::Reason::CANCEL);
        // The service has seen the reset when it answers what follows.
        let get = request(Method::GET).body(()).expect("a request");
        let (response, _) = sender.send_request(get, true).expect("it is open");
        assert_eq!(response.await.expect("an answer").status(), 200);
    });
}

/// Reads PostgreSQL's own log, which has a statement before the statement is answered.
#[test]
fn postgresql_is_told_the_traces_that_are_recorded_where_that_is_asked_for() {
    let postgres = Postgres::start(Durability::None, &["log_statement=all"]).expect("PostgreSQL starts");
    let place = Place::on(postgres.url("postgres"));
    let told = |trace: &str| {
        let log = postgres.logged().expect("a log");
        log.contains(&format!("/*traceparent='{trace}'*/"))
    };
    let fields = |trace: &str| format!("traceparent: {trace}\r\n");
    // A different one each time, since the log keeps earlier entries.
    let trace = |number: u32, flags: &str| format!("00-{:032x}-00f067aa0ba902b7-{flags}", number + 1);
    {
        let server = place.serve(&[]);
        let created = server.send("POST", "/v1/users", &fields(&trace(0, "01")), &user("a@example.org"));
        assert_eq!((created.status, told(&trace(0, "01"))), (201, false), "it is not asked for");
    }
    let server = place.serve(&["--trace-database", "--cache-bytes", "0"]);
    let created = server.send("POST", "/v1/users", &fields(&trace(1, "01")), &user("b@example.org"));
    assert_eq!((created.status, told(&trace(1, "01"))), (201, true), "a write");
    let path = created.field("location").expect("where it is");
    for (number, target) in [(2, path.as_str()), (3, "/v1/users?limit=1"), (4, "/v1/users:count")] {
        let answer = server.ask("GET", target, &fields(&trace(number, "01")), "");
        assert_eq!((answer.status, told(&trace(number, "01"))), (200, true), "{target}");
    }
    // What isn't recorded, and what is malformed, isn't passed on.
    for value in [trace(5, "00"), trace(6, "01").replace("-00f067aa0ba902b7", "-0000000000000000")] {
        assert_eq!(server.ask("GET", &path, &fields(&value), "").status, 200);
        assert!(!told(&value), "{value}");
    }
    assert_eq!(server.ask("GET", &path, &fields("'*/; DROP TABLE users; --"), "").status, 200);
    assert_eq!(server.get(&path).status, 200);
}
