//! Start, stop, settings, metrics and logs.

use std::fs;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testkit::logged;

use crate::client::Client;
use crate::place::{BINARY, Place, pattern, until};
use crate::secure::secure;

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
    // A request that was already sent is answered, as the last one.
    idle.send("GET /none HTTP/1.1\r\nHost: h\r\n\r\n");
    if let Ok(answer) = idle.receive(true) {
        assert!(answer.closes());
    }
    let address = server.address();
    assert!(server.wait(Duration::from_secs(60)).success());
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
    for (path, body) in [("/healthz", "{\"status\":\"ok\"}"), ("/readyz", "{\"status\":\"ready\"}")] {
        let answer = admin.get(path, "");
        assert_eq!((answer.status, answer.text()), (200, body));
        assert_eq!(answer.field("content-type").as_deref(), Some("application/json"));
        assert_eq!(answer.field("cache-control").as_deref(), Some("no-store"));
    }
    assert_eq!(server.metric("linerate_files_panics_total"), 0.0);
    assert_eq!(admin.get("/a", "").status, 404);
    assert_eq!(server.metric("linerate_files_requests_total{listener=\"plain\",status=\"200\"}"), 1.0);
    assert_eq!(server.metric("linerate_files_requests_total{listener=\"plain\",status=\"404\"}"), 1.0);
    // Counted once it is sent, which the client may notice earlier.
    until("it is counted", || {
        server.metric("linerate_files_sent_bytes_total{listener=\"plain\"}") > 10_000.0
    });
    assert!(server.metric("process_resident_memory_bytes") > 0.0);
}

#[test]
fn requests_are_logged_and_the_log_can_be_moved() {
    let place = Place::new();
    place.file("a", "text");
    let log = place.beside("access.log");
    let server = place.serve(&["--access-log", log.to_str().unwrap()]);
    server.get("/a?x=\"y\"", "User-Agent: test\"s\r\n");
    until("a line", || !logged(&log).is_empty());
    let line = logged(&log).remove(0);
    assert_eq!((&line["method"], &line["path"], &line["status"]), (&"GET".into(), &"/a".into(), &200.into()));
    assert_eq!(
        (&line["bytes"], &line["agent"], &line["client"]),
        (&4.into(), &"test\"s".into(), &"127.0.0.1".into())
    );
    assert_eq!((&line["http"], &line["tls"], &line["host"]), (&"1.1".into(), &Value::Null, &"h".into()));
    assert_eq!((&line["kind"], &line["key"]), (&"access".into(), &Value::Null));
    assert!(line["duration"].as_f64().is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{line}");
    // The target's host, which chooses the site, goes before the field.
    let mut client = server.connect();
    client.send("GET http://other:8090/a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.receive(true).expect("an answer").status, 200);
    until("its line", || logged(&log).len() == 2);
    let line = logged(&log).remove(1);
    assert_eq!((&line["host"], &line["path"]), (&"other:8090".into(), &"/a".into()));
    let moved = place.beside("access.log.1");
    fs::rename(&log, &moved).unwrap();
    server.signal(Signal::HUP);
    until("a new log", || {
        server.get("/a", "");
        !logged(&log).is_empty()
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
    until("one line in ten", || logged(&sampled).len() == 10);
    // The log lines of the last moment are written too.
    (0..50).for_each(|_| assert_eq!(client.get("/a", "").status, 200));
    drop(client);
    server.signal(Signal::TERM);
    assert!(server.wait(Duration::from_secs(60)).success());
    assert_eq!(logged(&sampled).len(), 15);
}

/// A request, and its expected log entry: status, method and path.
type Case<'c> = (&'c [u8], u16, Option<&'c str>, Option<&'c str>);

#[test]
fn every_request_is_logged_refused_ones_too_with_whatever_bytes_it_has() {
    let place = Place::new();
    place.file("a", "text");
    let log = place.beside("access.log");
    let server = place.serve(&["--listing", "--head-timeout", "5", "--access-log", log.to_str().unwrap()]);
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(9000));
    let many: String = (0..65).map(|n| format!("X{n}: y\r\n")).collect();
    let cut = format!("/{}...", "x".repeat(1023));
    let cases: [Case<'_>; 14] = [
        (b"GET /a HTTP/1.1\r\nHost: h\r\nUser-Agent: a\xffb\x80\r\n\r\n", 200, Some("GET"), Some("/a")),
        (b"POST /a?q HTTP/1.1\r\nHost: h\r\n\r\n", 405, Some("POST"), Some("/a")),
        (b"BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n", 405, Some("BREW"), Some("/pot")),
        (b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n", 404, Some("GET"), Some("/none")),
        (b"HEAD /none HTTP/1.1\r\nHost: h\r\n\r\n", 404, Some("HEAD"), Some("/none")),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 200, Some("GET"), Some("/")),
        (b"GET /nohost HTTP/1.1\r\n\r\n", 400, Some("GET"), Some("/nohost")),
        (b"GET /ctl HTTP/1.1\r\nHost: h\r\nA: b\0\r\n\r\n", 400, Some("GET"), Some("/ctl")),
        (b"\x16\x03\x01\x02\0\x01\xfe\r\n\r\n", 400, Some(r"\x16\x03\x01\x02\x00\x01\xfe"), None),
        (b"GET /\x1b[2J\xff HTTP/1.1\r\nHost: h\r\n\r\n", 400, Some("GET"), Some(r"/\x1b[2J\xff")),
        (long.as_bytes(), 414, Some("GET"), Some(&cut)),
        (b"GET /expect HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", 417, Some("GET"), Some("/expect")),
        (b"GET /2 HTTP/2.0\r\nHost: h\r\n\r\n", 505, Some("GET"), Some("/2")),
        (b"GET /slow HTTP/1.1\r\nHost:", 408, Some("GET"), Some("/slow")),
    ];
    let many = format!("GET /many HTTP/1.1\r\n{many}\r\n");
    let cases = cases.into_iter().chain([(many.as_bytes(), 431, Some("GET"), Some("/many"))]);
    for (number, (request, status, method, path)) in cases.enumerate() {
        let shown = String::from_utf8_lossy(request).into_owned();
        let mut client = server.connect();
        client.send(request);
        let answer = client.receive(!request.starts_with(b"HEAD")).expect("an answer");
        assert_eq!(answer.status, status, "{shown}");
        drop(client);
        until("its line", || logged(&log).len() == number + 1);
        let line = logged(&log).remove(number);
        assert_eq!((&line["method"], &line["path"]), (&Value::from(method), &Value::from(path)), "{shown}");
        assert_eq!((&line["status"], &line["client"]), (&status.into(), &"127.0.0.1".into()), "{shown}");
        let bytes = line["bytes"].as_u64().expect("a number") as usize;
        // A listing is sent in chunks, which have their own size lines.
        let fits = if path == Some("/") { bytes > answer.body.len() } else { bytes == answer.body.len() };
        assert!(fits, "{shown}: {bytes} of {}", answer.body.len());
        if status >= 400 {
            assert_eq!(answer.field("x-request-id").as_deref(), line["id"].as_str(), "{shown}");
        }
        if answer.field("content-type").as_deref() == Some("application/problem+json") && bytes > 0 {
            let problem: Value = serde_json::from_str(answer.text()).expect("JSON");
            assert_eq!(problem["request_id"], line["id"], "{shown}");
        }
    }
    assert_eq!(logged(&log)[0]["agent"], r"a\xffb\x80");
}

#[test]
fn an_answer_is_logged_when_it_ends_with_what_was_sent_of_it() {
    let place = Place::new();
    place.file("large", pattern(32 << 20));
    let log = place.beside("access.log");
    let server = place.serve(&["--access-log", log.to_str().unwrap()]);
    assert_eq!(server.get("/large", "").body.len(), 32 << 20);
    until("its line", || logged(&log).len() == 1);
    let line = logged(&log).remove(0);
    assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &(32 << 20).into()));
    // A client that leaves in the middle has read less.
    let mut client = server.connect();
    client.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    client.receive_head().expect("a head");
    drop(client);
    until("its line", || logged(&log).len() == 2);
    let line = logged(&log).remove(1);
    assert_eq!(line["status"], 200);
    assert!(line["bytes"].as_u64().is_some_and(|bytes| bytes < 32 << 20), "{line}");
}

#[test]
fn an_error_has_an_id_also_where_nothing_is_logged_and_a_trusted_proxys_is_taken_over() {
    let place = Place::new();
    for (flags, taken) in [(&[][..], false), (&["--trusted-proxy", "127.0.0.1"], true)] {
        let server = place.serve(flags);
        for (given, known) in [("from-proxy", taken), ("no \"good\"", false)] {
            let answer = server.get("/none", &format!("X-Request-Id: {given}\r\n"));
            let problem: Value = serde_json::from_str(answer.text()).expect("JSON");
            let id = problem["request_id"].as_str().expect("an id");
            assert_eq!(answer.field("x-request-id").as_deref(), Some(id));
            assert_eq!(id == given, known, "{flags:?}: {id}");
            assert!(known || (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())), "{id}");
        }
    }
}

#[test]
fn a_log_that_cannot_be_written_stops_nobody_and_is_counted() {
    let place = Place::new();
    place.file("a", "text");
    let server = place.serve(&["--admin", "127.0.0.1:0", "--access-log", "/dev/full"]);
    assert_eq!(server.get("/a", "").status, 200);
    until("a line is dropped", || server.metric("linerate_files_access_log_dropped_total") >= 1.0);
    server.assert_alive("/a");
}

#[test]
fn a_socket_that_systemd_passes_is_served() {
    let place = Place::new();
    place.file("a", "text");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // As in sd_listen_fds(3): descriptors from 3 on, and the id of the process.
    let script = format!(
        "exec 3<&{}; export LISTEN_FDS=1 LISTEN_FDNAMES=web LISTEN_PID=$$; exec \"$0\" \"$@\"",
        listener.as_raw_fd()
    );
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
    let _server = testkit::Server::program("bash")
        .args(["-c", &script, BINARY, "serve", "--listen", "systemd:web", "--root"])
        .arg(place.root(""))
        .start();
    drop(listener);
    assert_eq!(Client::connect(address).get("/a", "").text(), "text");
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let place = Place::new();
    place.file("a", "text");
    let server = secure(&place, &[]);
    let (cert, key) = (place.beside("cert.pem"), place.beside("key.pem"));
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let [plain, tls, admin] = [Some(server.address()), server.secure, server.admin]
        .map(|address| address.expect("it listens").to_string());
    for taken in [
        &["--listen", &*plain][..],
        &["--listen", "127.0.0.1:0", "--tls-listen", &tls, "--cert", cert, "--key", key],
        &["--listen", "127.0.0.1:0", "--admin", &admin],
    ] {
        let root = place.root("");
        let output = Command::new(BINARY).args(["serve", "--root"]).arg(root).args(taken).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert_eq!(output.status.code(), Some(1), "{taken:?}: {said}");
        assert_eq!(
            (said.matches("already in use").count(), said.trim_end().lines().count()),
            (1, 1),
            "{taken:?}: {said}"
        );
    }
    // The port is taken for UDP only. The start fails nevertheless, since HTTP/3 was requested too.
    let held = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--tls-listen", &address, "--cert", cert, "--key", key])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(output.status.code() == Some(1) && said.contains("already in use"), "{said}");
    server.assert_alive("/a");
}

#[test]
fn what_cannot_be_served_is_said_on_one_line() {
    let place = Place::new();
    let rules = place.beside("rules.toml");
    fs::write(&rules, "[[rule]]\npath = 'x'\n").unwrap();
    let bad = rules.to_str().unwrap();
    let (fifo, deep) = (place.beside("fifo"), place.beside("deep.toml"));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    fs::write(&deep, format!("a = {}", "[".repeat(500_000))).unwrap();
    let pages = place.beside("pages.toml");
    fs::write(&pages, "[error-pages]\n404 = 'errors/404.html'\n").unwrap();
    let (pages, root) = (pages.to_str().unwrap(), place.root(""));
    let root = root.to_str().unwrap();
    let (fifo, deep) = (fifo.to_str().unwrap(), deep.to_str().unwrap());
    let here = ["serve", "--listen", "127.0.0.1:0"];
    for (arguments, code) in [
        (&["serve", "--root", "/nowhere"][..], 2),
        (&["serve", "--rules", bad], 2),
        (&["serve", "--rules", "/nowhere"], 2),
        (&["serve", "--rules", fifo], 2),
        (&["serve", "--rules", "/dev/zero"], 2),
        (&["serve", "--rules", deep], 2),
        (&["check", "/dev/zero"], 2),
        (&["check", deep], 2),
        (&["check", pages, "--root", root], 2),
        (&["check", pages, "--root", "/nowhere"], 2),
        (&["serve", "--rules", pages, "--root", root], 2),
        (&["serve", "--engine", "magic"], 2),
        (&["serve", "--listen", "unix:/tmp/x"], 2),
        (&["serve", "--tls-listen", ":0"], 2),
        (&["serve", "--cert", "/nowhere", "--key", "/nowhere"], 2),
        (
            &[&here[..], &["--tls-listen", "127.0.0.1:0", "--cert", "/nowhere", "--key", "/nowhere"]]
                .concat(),
            2,
        ),
        (&[&here[..], &["--tls-listen", "127.0.0.1:0", "--cert", bad, "--key", bad]].concat(), 2),
        (&[&here[..], &["--access-log", "/nowhere/log"]].concat(), 2),
        (&["serve", "--json"], 2),
        (&["serve", "--charset", "a b"], 2),
        (&["check", bad], 2),
        (&["check"], 2),
    ] {
        let output = Command::new(BINARY).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.matches("there is no such file").count() < 2, "{arguments:?}: {said}");
    }
    place.file("errors/404.html", "lost");
    for arguments in [&["check", pages][..], &["check", pages, "--root", root]] {
        let output = Command::new(BINARY).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    // A page outside the root is taken where `serve` would follow the link.
    fs::write(place.beside("outside.html"), "lost").unwrap();
    fs::remove_file(place.root("errors/404.html")).unwrap();
    std::os::unix::fs::symlink("../../outside.html", place.root("errors/404.html")).unwrap();
    for (symlinks, code) in [("never", 2), ("beneath", 2), ("anywhere", 0)] {
        let arguments = ["check", pages, "--root", root, "--symlinks", symlinks];
        let output = Command::new(BINARY).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    }
    let output = Command::new(BINARY).args(["serve", "--help"]).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("--engine"));
}
