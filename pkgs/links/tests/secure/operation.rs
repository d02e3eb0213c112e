//! Operation: certificates, shutdown, metrics, and what the server prints about itself.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use testkit::until;

use crate::client::{Secure, Version, address, ask_one, curl_command, h3_script, metric, metrics, request};
use crate::http::Client;
use crate::server::{BINARY, Server};

/// Whether the server presents this certificate, over this version.
fn shows(server: &Server, version: Version, secure: &Secure, certificate: &str) -> bool {
    let pinned = secure.directory.path().join("pinned.pem");
    fs::write(&pinned, certificate).expect("a writable directory");
    let mut command = curl_command(server, version, &["/missing"]);
    command.arg("--no-insecure").arg("--cacert").arg(&pinned).args(["--output", "/dev/null"]);
    command.status().expect("curl runs").success()
}

#[test]
fn a_certificate_is_read_again_and_a_bad_one_is_not_taken() {
    let secure = Secure::new();
    let old = fs::read_to_string(secure.certificate()).unwrap();
    let server = secure.serve(&[]);
    for version in [Version::Http1, Version::Http2] {
        assert!(shows(&server, version, &secure, &old));
    }
    let new = secure.certify();
    server.signal(Signal::HUP);
    until("the new certificate", || shows(&server, Version::Http2, &secure, &new));
    assert!(!shows(&server, Version::Http1, &secure, &old));
    fs::write(secure.certificate(), "no certificate").unwrap();
    server.signal(Signal::HUP);
    server.wait_for_log("certificates stay as they are");
    assert!(shows(&server, Version::Http2, &secure, &new));
    // The server also notices a new certificate without a signal.
    let newest = secure.certify();
    until("the newest certificate", || shows(&server, Version::Http2, &secure, &newest));
    server.stop();
}

#[test]
fn each_host_has_its_certificate_by_every_version() {
    let secure = Secure::new();
    let other = Secure::named("b.example");
    let (certificate, key) = (other.certificate(), other.key());
    let second = ["--cert", certificate.to_str().expect("UTF-8"), "--key", key.to_str().expect("UTF-8")];
    let server = secure.serve(&second);
    for (name, shown) in
        [("localhost", &secure), ("b.example", &other), ("B.EXAMPLE", &other), ("c.example", &secure)]
    {
        let of = if std::ptr::eq(shown, &other) { "b.example" } else { "localhost" };
        let port = address(&server, Version::Http2).port();
        for version in ["--http1.1", "--http2"] {
            let output = Command::new("curl")
                .args(["--silent", "--max-time", "60", version, "--output", "/dev/null", "--cacert"])
                .arg(shown.certificate())
                // The requested host is `name`, and the expected certificate is for `of`.
                .args(["--connect-to", &format!("{name}:{port}:127.0.0.1:{port}")])
                .arg(format!("https://{name}:{port}/missing"))
                .output()
                .expect("curl runs");
            // curl(1): 60 means a certificate for another name.
            let expected = if name.eq_ignore_ascii_case(of) { 0 } else { 60 };
            assert_eq!(output.status.code(), Some(expected), "{name} {version}");
        }
        assert_eq!(h3_script(&server, "names", name).trim(), of, "{name}");
    }
    for name in ["localhost", "b.example"] {
        let labels = format!("{{listener=\"public\",name=\"{name}\"}}");
        let left = metric(&server, &["linerate_links_certificate_not_after_seconds", &labels]);
        assert!(left > 24.0 * 3600.0, "{name}: {left}");
    }
    // An invalid file leaves both certificates unchanged, and the log names it.
    secure.certify();
    fs::write(other.key(), "no key").expect("a writable directory");
    server.signal(Signal::HUP);
    server.wait_for_log("certificates stay as they are");
    server.wait_for_log(other.key().to_str().expect("UTF-8"));
    assert!(!shows(&server, Version::Http2, &secure, &fs::read_to_string(secure.certificate()).unwrap()));
    assert_eq!(h3_script(&server, "names", "b.example").trim(), "b.example");
    server.stop();
}

#[test]
fn connections_in_the_clear_and_by_tls_have_one_limit() {
    let secure = Secure::new();
    let server = secure.serve(&["--max-connections", "4"]);
    // A connection is admitted once it is answered.
    let held: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = Client::connect(server.public).expect("it listens");
            client.send("GET /missing HTTP/1.1\r\nHost: h\r\n\r\n").expect("it reads");
            assert_eq!(client.receive().expect("an answer").status, 404);
            client
        })
        .collect();
    let _fifth = Client::connect(server.secure.expect("it speaks TLS")).expect("it listens");
    until("that a fifth is turned away", || {
        metric(&server, &["linerate_links_listener_shed_total", "reason=\"overall\""]) > 0.0
    });
    drop(held);
    until("room by TLS", || shows_anything(&server));
    server.stop();
}

/// Whether a client with TLS gets an answer.
fn shows_anything(server: &Server) -> bool {
    let mut command = curl_command(server, Version::Http1, &["/missing"]);
    command.args(["--output", "/dev/null"]).status().expect("curl runs").success()
}

#[test]
fn without_tls_sighup_does_nothing() {
    let secure = Secure::new();
    let server = secure.place.serve(&[]);
    server.signal(Signal::HUP);
    assert_eq!(ask_one(&server, Version::Plain, request("GET", "/missing", &[])).status, 404);
    server.stop();
}

#[test]
fn a_server_without_its_certificate_does_not_start() {
    let secure = Secure::new();
    let (certificate, key) = (secure.certificate(), secure.key());
    let serve = |flags: &[&str]| {
        let output = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--database"])
            .arg(&secure.place.database)
            .args(flags)
            .output()
            .expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    for flags in [
        &["--tls-listen", "127.0.0.1:0"][..],
        &["--https-redirect"],
        &["--hsts", "1"],
        &["--tls-listen", "127.0.0.1:0", "--cert", key, "--key", key],
        &["--tls-listen", "127.0.0.1:0", "--cert", certificate, "--key", "/nowhere"],
        &["--tls-listen", "127.0.0.1:0", "--cert", certificate, "--cert", certificate, "--key", key],
        &["--admin-cert", certificate],
        &["--admin-cert", certificate, "--admin-key", "/nowhere"],
    ] {
        let (code, said) = serve(flags);
        assert_eq!(code, Some(2), "{flags:?}: {said}");
        let errors = said.lines().filter(|line| line.starts_with("error: ")).count();
        assert!(errors == 1 && said.ends_with('\n'), "{flags:?}: {said}");
    }
    assert!(!secure.place.database.exists(), "nothing is made before the listeners are");
}

#[test]
fn visitors_are_counted_by_what_they_speak() {
    let secure = Secure::new();
    let server = secure.serve(&[]);
    assert_eq!(server.api().create("abc", "https://t.example/").unwrap(), 201);
    for version in Version::ALL {
        assert_eq!(ask_one(&server, version, request("GET", "/abc", &[])).status, 307);
    }
    assert_eq!(metric(&server, &["linerate_links_requests_total", "\"307\""]), 4.0);
    // Connections without TLS and with TLS.
    for (protocol, count) in [("http1", 2.0), ("http2", 1.0), ("http3", 1.0)] {
        assert_eq!(
            metric(&server, &["listener_accepted_total", &format!("\"{protocol}\"")]),
            count,
            "{protocol}"
        );
    }
    let named = ["linerate_links_", "linerate_build_info{", "process_"];
    for line in metrics(&server).lines().filter(|line| !line.starts_with('#')) {
        assert!(named.iter().any(|name| line.starts_with(name)), "{line}");
    }
    let found = metric(&server, &["lookups_total", "hit"]) + metric(&server, &["lookups_total", "miss"]);
    assert_eq!(found, 4.0);
}

#[test]
fn links_that_would_lead_back_by_tls_are_refused() {
    let secure = Secure::new();
    let server = secure.serve(&[]);
    let target = format!("https://{}/abc", server.secure.unwrap());
    assert_eq!(server.api().create("loop", &target).unwrap(), 422);
}

#[test]
fn a_form_that_does_not_come_is_not_waited_for() {
    let secure = Secure::new();
    let server = secure.serve(&["--head-timeout", "3"]);
    let link = json!({ "code": "abc", "target": "https://t.example/", "password": "p" });
    assert_eq!(server.api().add(&link).unwrap(), 201);
    let mut command = curl_command(&server, Version::Http1, &["/abc"]);
    let mut client = command
        .args([
            "--request",
            "POST",
            "--upload-file",
            "-",
            "--header",
            "expect:",
            "--write-out",
            "%{http_code}",
        ])
        .args(["--output", "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl runs");
    // The body is held open and never written to. The server doesn't wait for it.
    let held = client.stdin.take();
    until("it is told", || metric(&server, &["linerate_links_requests_total", "\"408\""]) == 1.0);
    drop(held);
    let output = client.wait_with_output().expect("curl ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "408");
}

#[test]
fn at_sigterm_every_visitor_is_answered_and_every_click_stored() {
    let secure = Secure::new();
    let server = secure.serve(&["--drain-timeout", "30"]);
    assert_eq!(server.api().create("abc", "https://t.example/").unwrap(), 201);
    let many = vec!["/abc"; 20_000];
    let answered: u64 = std::thread::scope(|scope| {
        let by_tcp = [Version::Http1, Version::Http2].map(|version| {
            let (server, many) = (&server, &many);
            scope.spawn(move || {
                let mut command = curl_command(server, version, &[]);
                command.args(["--write-out", "%{http_code} %{exitcode} %{num_connects}\\n"]);
                let port = server.secure.unwrap().port();
                let urls: String = many
                    .iter()
                    .map(|path| format!("url = https://localhost:{port}{path}\noutput = /dev/null\n"))
                    .collect();
                let file = secure_file(version);
                fs::write(file.path(), urls).expect("a file");
                let output = command.arg("--config").arg(file.path()).output().expect("curl runs");
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let mut answered = 0;
                for line in text.lines() {
                    match line.split(' ').collect::<Vec<_>>()[..] {
                        ["307", "0", _] => answered += 1,
                        // The connection was refused, or the kernel accepted it and the server never answers.
                        ["000", "7" | "35", _] => {}
                        _ => panic!("{version:?}: {line}"),
                    }
                }
                answered
            })
        });
        let by_quic =
            scope.spawn(|| -> u64 { h3_script(&server, "visit", "/abc").trim().parse().expect("a count") });
        let mut api = server.api();
        until("visits are under way by all", || {
            api.clicks("abc") > 300 && metric(&server, &["listener_accepted_total", "http3"]) > 0.0
        });
        drop(api);
        server.terminate();
        by_tcp.into_iter().map(|visitor| visitor.join().unwrap()).sum::<u64>() + by_quic.join().unwrap()
    });
    assert!(server.wait(Duration::from_secs(60)).success());
    assert!(answered > 300);
    let server = secure.serve(&[]);
    assert_eq!(server.api().clicks("abc"), answered);
    server.stop();
}

/// A configuration file for curl.
fn secure_file(version: Version) -> tempfile::NamedTempFile {
    tempfile::Builder::new().prefix(&format!("{version:?}")).tempfile().expect("a temporary file")
}

#[test]
fn clicks_by_tls_survive_a_crash() {
    let secure = Secure::new();
    let server = secure.serve(&[]);
    assert_eq!(server.api().create("abc", "https://t.example/").unwrap(), 201);
    for version in Version::SECURE {
        assert_eq!(ask_one(&server, version, request("GET", "/abc", &[])).status, 307);
    }
    let mut api = server.api();
    until("the clicks are stored", || api.clicks("abc") == 3);
    drop(api);
    server.kill();
    let server = secure.serve(&[]);
    assert_eq!(server.api().clicks("abc"), 3);
    server.stop();
}
