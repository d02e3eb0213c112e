//! Start, stop, settings, health and metrics.

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use testkit::until;

use crate::client::Client;
use crate::place::{BINARY, Place, ask, problem, user, value};

on_each_database! { a_database_is_migrated_and_seeded_before_anything_is_served }

fn a_database_is_migrated_and_seeded_before_anything_is_served(place: &Place) {
    let run = |arguments: &[&str]| {
        let output = place.command(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    // Concurrent migrations wait for each other.
    let mut migrate = Command::new(BINARY);
    migrate.arg("migrate").env("LINERATE_API_DATABASE_URL", place.database()).stdout(Stdio::null());
    let others: Vec<_> = (0..3).map(|_| migrate.spawn().expect("the binary runs")).collect();
    assert!(run(&["migrate"]).ends_with(" is up to date\n"));
    for mut other in others {
        assert!(other.wait().expect("it ends").success());
    }
    assert_eq!(run(&["seed", "--count", "600"]), "600 users written, 0 were there\n");
    assert_eq!(run(&["seed", "--count", "700"]), "100 users written, 600 were there\n");
    let server = place.serve(&[]);
    assert_eq!(value(&server.get("/v1/users:count")), json!({"count": 700}));
    assert_eq!(server.get(&format!("/v1/users/{}", api::seed::id(699))).status, 200);
}

#[test]
fn a_database_that_cannot_be_reached_is_said_on_one_line() {
    for database in ["sqlite:/dev/null/users.db", "postgres://postgres@127.0.0.1:1/users"] {
        let place = Place::on(database.to_owned());
        for arguments in
            [&["migrate"][..], &["seed"], &["key", "list"], &["serve", "--listen", "127.0.0.1:0"]]
        {
            let output = place.command(arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && said.trim_end().lines().count() == 1,
                "{arguments:?}: {said}"
            );
        }
    }
}

#[test]
fn health_and_metrics_are_answered_on_the_admin_listener() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut admin = Client::connect(server.admin);
    for (path, status) in [("/healthz", "ok"), ("/readyz", "ready")] {
        let answer = ask(&mut admin, "GET", path, "", "");
        assert_eq!((answer.status, value(&answer)), (200, json!({"status": status})));
        assert_eq!(answer.field("content-type").as_deref(), Some("application/json"));
        assert_eq!(answer.field("cache-control").as_deref(), Some("no-store"));
    }
    problem(&server.get("/metrics"), 404);
    let id = server.create("a@example.org")["id"].as_str().expect("an id").to_owned();
    for _ in 0..3 {
        assert_eq!(server.get(&format!("/v1/users/{id}")).status, 200);
    }
    problem(&server.get("/v1/users/x"), 404);
    assert_eq!(server.metric("linerate_api_requests_total{operation=\"get\",status=\"2xx\"}"), 3.0);
    assert_eq!(server.metric("linerate_api_requests_total{operation=\"get\",status=\"4xx\"}"), 1.0);
    assert_eq!(server.metric("linerate_api_request_seconds_count{operation=\"get\"}"), 4.0);
    assert!(server.metric("process_resident_memory_bytes") > 0.0);
    assert!(server.metric("linerate_api_listener_accepted_total{protocol=\"http1\"}") >= 1.0);
    for line in server.metrics().lines().filter(|line| !line.starts_with('#')) {
        let names = ["linerate_api_", "linerate_build_info{", "process_"];
        assert!(names.iter().any(|name| line.starts_with(name)), "{line}");
    }
}

#[test]
fn what_is_under_way_is_finished_and_what_was_written_is_there_afterwards() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut busy = server.connect();
    let body = user("a@example.org").to_string();
    let (first, rest) = body.split_at(10);
    let length = body.len();
    // Once the client is told to continue, the server has begun its request.
    busy.send(format!(
        "POST /v1/users HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Expect: 100-continue\r\n\r\n"
    ));
    assert_eq!(busy.receive(false).expect("an answer").status, 100);
    busy.send(first);
    server.signal(Signal::TERM);
    until("nobody is let in any more", || TcpStream::connect(server.public).is_err());
    busy.send(rest);
    let answer = busy.receive(true).expect("an answer");
    assert_eq!(answer.status, 201);
    assert!(answer.closes());
    assert!(server.wait(Duration::from_secs(60)).success());
    assert_eq!(value(&place.serve(&[]).get("/v1/users:count")), json!({"count": 1}));
}

#[test]
fn what_is_under_way_is_cut_off_when_its_time_to_finish_is_over() {
    let place = Place::new();
    let server = place.serve(&["--drain-timeout", "1"]);
    let mut busy = server.connect();
    busy.send(
        "POST /v1/users HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\
         Expect: 100-continue\r\n\r\n",
    );
    assert_eq!(busy.receive(false).expect("an answer").status, 100);
    server.signal(Signal::TERM);
    // The server could also answer 408 for a body that never arrives, but much later.
    assert!(busy.receive(true).is_err(), "it is cut off");
    assert!(server.wait(Duration::from_secs(60)).success());
}

#[test]
fn a_taken_address_is_refused() {
    let place = Place::new();
    let first = place.serve(&[]);
    for flag in ["--listen", "--admin"] {
        let taken = if flag == "--listen" { first.public } else { first.admin }.to_string();
        let other = Place::new();
        let (code, said) = other.refused(&["--listen", "127.0.0.1:0", flag, &taken]);
        assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(&taken) && said.contains("in use"), "{said}");
    }
    assert_eq!(first.get("/v1/users").status, 200);
}

#[test]
fn settings_are_read_again_when_it_is_told_to() {
    let place = Place::new();
    let config = place.path("api.toml");
    fs::write(&config, "unknown-fields = \"refuse\"\nmax-batch = 1\n").expect("a file");
    let server = place.serve(&["--config", &config.display().to_string()]);
    let mut sent = user("a@example.org");
    sent["extra"] = json!(1);
    let answer = server.send("POST", "/v1/users:validate", "", &sent);
    assert_eq!(problem(&answer, 422), ["/extra"]);
    // Settings that make no sense change nothing.
    for (text, status) in [("unknown-fields = \"perhaps\"\n", 422), ("unknown-fields = \"keep\"\n", 200)] {
        fs::write(&config, text).expect("a file");
        server.signal(Signal::HUP);
        let said = if status == 200 { "settings were read again" } else { "settings stay as they are" };
        until(said, || server.log().contains(said));
        assert_eq!(server.send("POST", "/v1/users:validate", "", &sent).status, status);
    }
}

#[test]
fn the_command_line_describes_itself_and_refuses_what_makes_no_sense() {
    let place = Place::new();
    let text = |arguments: &[&str]| {
        let output = place.command(arguments);
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(text(&["completions", "bash"]).contains("linerate-api"));
    assert!(text(&["man"]).contains(".TH"));
    assert!(text(&["serve", "--help"]).contains("LINERATE_API_CORS_ORIGIN"));
    let description: serde_json::Value = serde_json::from_str(&text(&["openapi"])).expect("JSON");
    assert!(description["openapi"].as_str().expect("a version").starts_with("3.1"));
    for flags in [
        &["--listen", "nowhere"][..],
        &["--database-url", "mysql://x"],
        &["--max-batch", "0"],
        &["--cors-origin", "app.example"],
        &["--tls-listen", "127.0.0.1:0"],
        &["--tls-listen", "127.0.0.1:0", "--cert", "/nonexistent", "--key", "/nonexistent"],
        &["--allowed-host", "https://api.example"],
        &["--max-bodies-bytes", "-1"],
        &["--config", "/nonexistent"],
    ] {
        let (code, said) = place.refused(flags);
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{flags:?}: {said}");
    }
}
