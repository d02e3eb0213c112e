//! Start, stop, settings, metrics and logs.

use std::fs;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::Client;
use crate::place::{BINARY, Place, pattern, until};

#[test]
fn what_is_under_way_is_finished_and_nothing_new_begun() {
    let place = Place::new();
    place.file("large", pattern(32 << 20));
    let server = place.serve(&[]);
    let mut busy = server.connect();
    busy.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut idle = server.connect();
    assert_eq!(idle.get("/none", "").status, 404);
    let head = busy.receive_head().expect("a head");
    server.signal(Signal::TERM);
    let answer = busy.receive_body(head).expect("the whole answer");
    assert!(answer.body == pattern(32 << 20));
    // A request that was on its way is answered, as the last.
    idle.send("GET /none HTTP/1.1\r\nHost: h\r\n\r\n");
    if let Ok(answer) = idle.receive(true) {
        assert!(answer.closes());
    }
    let address = server.address();
    assert!(server.wait(Duration::from_secs(10)).success());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn health_and_metrics_are_answered_on_the_admin_listener() {
    let place = Place::new();
    place.file("a", pattern(10_000));
    let server = place.serve(&["--admin", "127.0.0.1:0"]);
    server.assert_alive("/a");
    assert_eq!(server.get("/b", "").status, 404);
    let mut admin = Client::connect(server.admin.expect("an admin listener"));
    assert_eq!(admin.get("/healthz", "").text(), "ok\n");
    assert_eq!(admin.get("/readyz", "").text(), "ready\n");
    assert_eq!(admin.get("/a", "").status, 404);
    assert_eq!(server.metric("files_requests_total{listener=\"plain\",status=\"200\"}"), 1.0);
    assert_eq!(server.metric("files_requests_total{listener=\"plain\",status=\"404\"}"), 1.0);
    assert!(server.metric("files_sent_bytes_total{listener=\"plain\"}") > 10_000.0);
    assert!(server.metric("process_resident_memory_bytes") > 0.0);
}

#[test]
fn requests_are_logged_and_the_log_can_be_moved() {
    let place = Place::new();
    place.file("a", "text");
    let log = place.beside("access.log");
    let server = place.serve(&["--access-log", log.to_str().unwrap()]);
    server.get("/a?x=\"y\"", "User-Agent: test\"s\r\n");
    let lines = |path: &std::path::Path| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    until("a line", || !lines(&log).is_empty());
    let line = lines(&log).remove(0);
    assert_eq!((&line["method"], &line["path"], &line["status"]), (&"GET".into(), &"/a".into(), &200.into()));
    assert_eq!(
        (&line["bytes"], &line["agent"], &line["address"]),
        (&4.into(), &"test\"s".into(), &"127.0.0.1".into())
    );
    assert_eq!((&line["protocol"], &line["tls"]), (&"http1".into(), &false.into()));
    let moved = place.beside("access.log.1");
    fs::rename(&log, &moved).unwrap();
    server.signal(Signal::HUP);
    until("a new log", || {
        server.get("/a", "");
        std::thread::sleep(Duration::from_millis(300));
        !lines(&log).is_empty()
    });

    let sampled = place.beside("sampled.log");
    let server = place.serve(&[
        "--workers",
        "1",
        "--access-log",
        sampled.to_str().unwrap(),
        "--access-log-sample",
        "10",
    ]);
    let mut client = server.connect();
    (0..100).for_each(|_| assert_eq!(client.get("/a", "").status, 200));
    until("one line in ten", || lines(&sampled).len() == 10);
    // Those of the last moment are written all the same.
    (0..50).for_each(|_| assert_eq!(client.get("/a", "").status, 200));
    drop(client);
    server.signal(Signal::TERM);
    assert!(server.wait(Duration::from_secs(10)).success());
    assert_eq!(lines(&sampled).len(), 15);
}

#[test]
fn a_socket_that_systemd_passes_is_served() {
    let place = Place::new();
    place.file("a", "text");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // As sd_listen_fds(3) has it: descriptor 3 on, and the number of the process.
    let script = format!(
        "exec 3<&{}; export LISTEN_FDS=1 LISTEN_FDNAMES=web LISTEN_PID=$$; exec \"$0\" \"$@\"",
        listener.as_raw_fd()
    );
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
    let mut process = Command::new("bash")
        .args(["-c", &script, BINARY, "serve", "--listen", "systemd:web", "--root"])
        .arg(place.root(""))
        .spawn()
        .unwrap();
    drop(listener);
    assert_eq!(Client::connect(address).get("/a", "").text(), "text");
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn what_cannot_be_served_is_said_on_one_line() {
    let place = Place::new();
    let rules = place.beside("rules.toml");
    fs::write(&rules, "[[rule]]\npath = 'x'\n").unwrap();
    let bad = rules.to_str().unwrap();
    for (arguments, code) in [
        (&["serve", "--root", "/nowhere"][..], 2),
        (&["serve", "--rules", bad], 2),
        (&["serve", "--rules", "/nowhere"], 2),
        (&["serve", "--engine", "magic"], 2),
        (&["serve", "--listen", "unix:/tmp/x"], 2),
        (&["serve", "--tls-listen", ":0"], 2),
        (&["serve", "--charset", "a b"], 2),
        (&["check", bad], 2),
        (&["check"], 2),
    ] {
        let output = Command::new(BINARY).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
    }
    let output = Command::new(BINARY).args(["serve", "--help"]).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("--engine"));
}
