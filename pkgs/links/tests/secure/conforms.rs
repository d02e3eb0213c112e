//! The real binary. h2spec checks HTTP/2 completely and strictly, and aioquic checks HTTP/3.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use testkit::until;

use crate::client::{Secure, Version, address, h3_script, metric};
use crate::raw;
use crate::server::Server;
use crate::spec::{CASES, CONCURRENCY, run};
use crate::tools;

#[test]
fn http2_conforms() {
    let secure = Secure::new();
    let server = secure.serve(&[]);
    let address = server.secure.expect("it speaks TLS");
    // A form to this path is read to its end before it is answered. If an answer comes earlier, the clients ignore the
    // rest.
    let locked = json!({ "code": "lock", "target": "https://t.example/", "password": "open & sesame" });
    assert_eq!(server.api().add(&locked).expect("an answer"), 201);
    let (cases, mut failed) = run(address, &["--tls", "--insecure"], "/lock", &[]);
    // Answers arrive before the next stream is opened, so this suite cannot reach the limit. The listener's own tests
    // check how many streams there may be at once.
    failed.retain(|suite| suite != CONCURRENCY);
    assert_eq!((cases, failed), (CASES, Vec::<String>::new()));
    server.stop();
}

/// Runs cases from the listener's own tests, on a server with these flags, and stops it.
fn by_aioquic(flags: &[&str], cases: &[&str]) {
    served_by_aioquic(flags, cases).0.stop();
}

/// The same, without stopping it. Its directory has to be there until then.
fn served_by_aioquic(flags: &[&str], cases: &[&str]) -> (Server, Secure) {
    let secure = Secure::new();
    let robots = secure.directory.path().join("robots.txt");
    fs::write(&robots, "Hello, World!").expect("a writable directory");
    let flags = [&["--robots", robots.to_str().expect("UTF-8")], flags].concat();
    let server = raw::serve(&secure, &flags);
    let output = Command::new(tools::aioquic())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../listener/tests/interop/h3.py"))
        .arg(address(&server, Version::Http3).port().to_string())
        .args(cases)
        .envs([("HELLO", "/robots.txt"), ("READ", "/lock"), ("SERVER", &server.id().to_string())])
        .output()
        .expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    (server, secure)
}

#[test]
fn malformed_requests_by_http_3_are_reset_and_noise_harms_nobody_else() {
    by_aioquic(
        &["--head-timeout", "60"],
        &[
            "resets_malformed_requests",
            "resets_requests_that_end_early",
            "closes_connections_that_break_the_protocol",
            "resumes_sessions_without_early_data",
            "survives_noise",
        ],
    );
}

#[test]
fn who_comes_by_quic_is_told_which_requests_were_answered_when_it_drains() {
    let (server, _secure) = served_by_aioquic(&[], &["names_what_it_has_answered"]);
    // It was told to stop, and ends at once if it is told again.
    let status = server.wait(Duration::from_secs(60));
    assert!(status.success(), "{status}: {}", server.log());
}

#[test]
fn under_load_who_comes_by_quic_proves_an_address() {
    by_aioquic(&["--workers", "1"], &["has_clients_prove_their_addresses_under_load"]);
}

#[test]
fn connections_of_one_address_by_quic_have_a_limit() {
    by_aioquic(&["--address-connections", "2"], &["refuses_connections_beyond_the_limit"]);
}

#[test]
fn a_visitor_by_quic_may_move_to_other_ports() {
    let secure = Secure::new();
    let server = secure.serve(&["--workers", "2"]);
    assert_eq!(server.api().create("abc", "https://t.example/").expect("an answer"), 201);
    assert_eq!(h3_script(&server, "move", "/abc").trim(), "24");
    // Half of the ports belong to the other worker. The worker that gets such a packet forwards it.
    assert!(metric(&server, &["linerate_links_listener_quic_forwarded_total"]) > 0.0);
    let mut api = server.api();
    until("each visit is counted", || api.clicks("abc") >= 24);
    assert_eq!(api.clicks("abc"), 24);
    server.stop();
}
