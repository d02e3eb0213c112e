//! Many connections at once, and more than possible.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::raw::{self, Raw};
use crate::server::{Server, TICKS};

const CROWD: usize = 10_000;
/// The server's memory limit for them, in KiB.
const MEMORY: u64 = 64 << 10;

#[test]
fn ten_thousand_idle_connections_fit_into_64_mib() {
    let wanted = CROWD as u64 + 1_000;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum.map(|most| most.max(limit.current.unwrap_or(most)));
    // Root may raise it; for others it is fixed.
    let raised = Rlimit { current: current.or(Some(wanted)), maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
    if getrlimit(Resource::Nofile).current.is_some_and(|most| most < wanted) {
        let most = getrlimit(Resource::Nofile).current;
        let why = format!("a process may open {most:?} files here, {wanted} are needed");
        return bench::skipped("ten_thousand_idle_connections_fit_into_64_mib", &why);
    }
    let server = Server::start(&[]);
    let mut crowd = Vec::with_capacity(CROWD);
    for _ in 0..CROWD {
        let mut raw = Raw::connect(server.clear);
        raw.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("the server listens");
        crowd.push(raw);
    }
    for raw in &mut crowd {
        let mut answer = [0; 12];
        std::io::Read::read_exact(&mut raw.0, &mut answer).expect("an answer");
        assert_eq!(raw::status(&answer), Some(200));
    }
    server.until(|metrics| metrics.sum("interop_listener_open{protocol=\"http1\"}") > CROWD as f64);
    // Without the program itself, which is large if it isn't optimised.
    let used = server.anonymous() / 1024;
    eprintln!("{CROWD} idle connections: {used} KiB");
    assert!(used < MEMORY, "{used} KiB");
}

#[test]
fn running_out_of_files_does_not_spin() {
    let server = Server::start_with_files(64, &["--workers", "1"]);
    // There are more clients than descriptors, so some wait in the backlog.
    let mut crowd: Vec<_> = (0..120).map(|_| Raw::connect(server.clear)).collect();
    // Waits for a message that the server can only log once it has run out, and some seconds more.
    let begun = Instant::now();
    let before = server.time();
    while begun.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let spent = server.time() - before;
    assert!(spent < TICKS / 4, "{spent} of {} ticks in two seconds of nothing", 2 * TICKS);
    crowd.truncate(20);
    let mut raw = Raw::connect(server.clear);
    raw.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("the server listens");
    assert_eq!(raw::status(&raw.rest()), Some(200));
    server.until(|metrics| metrics.sum("interop_listener_accept_errors_total") >= 1.0);
}
