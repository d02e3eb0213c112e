//! Many connections at once, and more than there can be.

use std::time::{Duration, Instant};

use crate::raw::{self, Raw};
use crate::server::{Server, TICKS};

#[test]
fn running_out_of_files_does_not_spin() {
    let server = Server::start_with_files(64, &["--workers", "1"]);
    // As many as there are files for and more, which wait in the backlog.
    let mut crowd: Vec<_> = (0..120).map(|_| Raw::connect(server.clear)).collect();
    // Waits for what the server can say only once it has run out, and some seconds more.
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
    server.until(|metrics| metrics.sum("listener_accept_errors_total") >= 1.0);
}
