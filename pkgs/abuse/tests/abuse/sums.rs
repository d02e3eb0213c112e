//! Bodies that are each within their limits, but too large together.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use abuse::promise::memory_max;

use crate::services::api;

/// The size of the API's cache in these tests, and the number of connections.
pub const CACHE_BYTES: u64 = 1 << 20;
const ROOM: u64 = 200;

/// The largest body: the default of `--max-batch-bytes`.
const BODY_BYTES: usize = 8 << 20;

/// Clients that each send a body except its last byte. Together they send more than the API's memory limit.
const CLIENTS: usize = 80;

/// If the server reads nothing for this long, the clients have sent all that it accepts.
const STUCK: Duration = Duration::from_secs(1);

/// `MemoryMax` of the API with that cache and room for this many connections.
pub fn granted(room: u64) -> u64 {
    let settings =
        [("max-connections", room), ("cache-bytes", CACHE_BYTES), ("max-batch-bytes", BODY_BYTES as u64)];
    memory_max("api", &settings)
}

#[test]
fn bodies_under_way_stay_within_what_the_api_is_granted() {
    let granted = granted(ROOM);
    assert!((CLIENTS * BODY_BYTES) as u64 > granted, "{CLIENTS} bodies are no more than {granted}");
    let (cache, room) = (CACHE_BYTES.to_string(), ROOM.to_string());
    let service = api(&["--cache-bytes", &cache, "--max-connections", &room, "--workers", "2"]);
    let address = service.listeners[0].door.address;
    let piece = vec![b' '; 256 << 10];
    let mut held: Vec<(TcpStream, usize)> = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let head = format!(
            "POST /v1/users:batchGet HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        stream.set_nonblocking(true).expect("an option");
        held.push((stream, BODY_BYTES - 1));
    }
    // All clients send at the same time, until each has sent its part, was refused, or has to wait.
    let mut moved = Instant::now();
    while moved.elapsed() < STUCK && held.iter().any(|(_, left)| *left > 0) {
        for (stream, left) in held.iter_mut().filter(|(_, left)| *left > 0) {
            match stream.write(&piece[..piece.len().min(*left)]) {
                Ok(count) => {
                    *left -= count;
                    moved = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => *left = 0,
            }
        }
    }
    for listener in &service.listeners {
        listener.visit().unwrap_or_else(|why| panic!("{why}"));
    }
    service.program.assert_runs("bodies under way");
    let most = service.program.peak();
    assert!(most < granted, "{} MiB were taken, {} are granted", most >> 20, granted >> 20);
    // Clients that leave make room.
    drop(held);
    let user = br#"{"ids":[]}"#;
    let again = testkit::wait_for("a body that is taken again", || {
        let fields = "Content-Type: application/json\r\n";
        abuse::program::ask(address, "POST", "/v1/users:batchGet", fields, user)
            .ok()
            .filter(|answer| answer.status != 503)
    });
    assert!(again.status < 500, "{again:?}");
}
