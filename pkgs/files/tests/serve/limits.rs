//! Clients that are slow, many or greedy.

use std::io::Read;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::Client;
use crate::place::{Place, pattern};

#[test]
fn ten_thousand_clients_that_take_nothing_keep_nobody_waiting() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("a raised limit");
    // Where the system allows fewer, as many as it does.
    let most = limit.maximum.map_or(usize::MAX, |most| most as usize).saturating_sub(500);
    let count = most.min(10_000);
    let place = Place::new();
    place.file("large", pattern(8 << 20));
    place.file("small", pattern(1_000));
    let server = place.serve(&["--max-connections", "12000"]);
    let before = server.resident();
    let crowd: Vec<Client> = (0..count)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
            client
        })
        .collect();
    let mut client = server.connect();
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let start = Instant::now();
        assert!(client.get("/small", "").body == pattern(1_000));
        slowest = slowest.max(start.elapsed());
    }
    let taken = server.resident().saturating_sub(before);
    eprintln!("{count} slow clients: {} KiB of memory, slowest other answer {slowest:?}", taken >> 10);
    assert!(taken < 64 << 20, "{taken} bytes of memory");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    drop(crowd);
    server.assert_alive("/small");
}

#[test]
fn slow_clients_are_let_go() {
    let place = Place::new();
    place.file("large", pattern(64 << 20));
    let server = place.serve(&["--head-timeout", "1", "--idle-timeout", "1", "--write-timeout", "1"]);
    // Half a head, dripping: the deadline does not move.
    let mut dripping = server.connect();
    let start = Instant::now();
    let mut told = false;
    while start.elapsed() < Duration::from_secs(5) {
        if std::io::Write::write_all(&mut dripping.stream, b"GET").is_err() {
            told = true;
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(told, "a dripping head is cut");
    let mut half = server.connect();
    half.send("GET / HTTP/1.1\r\nHost:");
    assert_eq!(half.receive(true).expect("told why").status, 408);
    assert!(half.is_closed());
    // Nothing said at all, and nothing said any more.
    assert!(server.connect().is_closed());
    let mut idle = server.connect();
    assert_eq!(idle.get("/none", "").status, 404);
    assert!(idle.is_closed());
    // Nothing taken: what comes is not the whole.
    let mut stalled = server.connect();
    stalled.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    std::thread::sleep(Duration::from_secs(3));
    let (all, _) = stalled.rest();
    assert!(all.len() < 64 << 20, "{}", all.len());
}

#[test]
fn a_client_that_takes_a_little_at_a_time_is_served() {
    let place = Place::new();
    place.file("large", pattern(16 << 20));
    let server = place.serve(&["--write-timeout", "2"]);
    let mut client = server.connect();
    client.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.receive_head().expect("a head");
    assert_eq!(head.status, 200);
    let mut taken = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = client.stream.read(&mut buffer) {
        taken += count;
        std::thread::sleep(Duration::from_millis(100));
    }
    // The head's client may have taken the first bytes along.
    assert!(taken > (16 << 20) - (128 << 10), "{taken}");
}

#[test]
fn one_address_has_its_limits() {
    let place = Place::new();
    place.file("a", "a");
    let server = place.serve(&["--address-connections", "3", "--address-rate", "1", "--address-burst", "5"]);
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    let statuses: Vec<u16> = (0..8).map(|n| clients[n % 3].get("/a", "").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429));
    assert!(server.connect().is_closed(), "a fourth connection");
    clients.clear();
    crate::place::until("a place again", || {
        let mut client = server.connect();
        client.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        // A connection that is let in stays silent.
        matches!(client.stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
}

#[test]
fn a_large_transfer_does_not_hold_up_a_small_one() {
    let place = Place::new();
    place.file("large", pattern(64 << 20));
    place.file("small", pattern(1_000));
    let server = place.serve(&["--workers", "1"]);
    let address = server.address();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    client.get("/large", "");
                }
            });
        }
        let mut client = server.connect();
        let slowest = (0..50)
            .map(|_| {
                let start = Instant::now();
                client.get("/small", "");
                start.elapsed()
            })
            .max();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(slowest < Some(Duration::from_secs(2)), "{slowest:?}");
    });
}
