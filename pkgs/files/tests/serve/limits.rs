//! Slow, numerous or greedy clients.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::Client;
use crate::place::{Place, crowd_of, pattern, taken, until};

#[test]
fn ten_thousand_clients_that_take_nothing_keep_nobody_waiting() {
    const COUNT: usize = 10_000;
    let Some(_alone) = crowd_of("ten thousand clients that take nothing", COUNT + COUNT / 10) else { return };
    let place = Place::new();
    place.file("large", pattern(8 << 20));
    place.file("small", pattern(1_000));
    let server = place.serve(&["--max-connections", "12000"]);
    let come = |count: usize| -> Vec<Client> {
        let stalled = |_| {
            let mut client = server.connect();
            client.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
            client
        };
        (0..count).map(stalled).collect()
    };
    // What workers allocate once, whatever clients come, isn't counted. Neither is code, which is unmapped a second after
    // the start and comes back as it runs.
    let mut first = come(COUNT / 10);
    for client in &mut first {
        client.stream.read_exact(&mut [0; 12]).expect("it is served");
    }
    let before = server.anonymous();
    let crowd = come(COUNT);
    let mut client = server.connect();
    for _ in 0..100 {
        assert!(client.get("/small", "").body == pattern(1_000));
    }
    let taken = server.anonymous().saturating_sub(before);
    let each = taken / COUNT as u64;
    eprintln!("{COUNT} slow clients: {each} bytes of memory each");
    // README.md promises as much.
    assert!(each < 512, "{each} bytes of memory each");
    drop((first, crowd));
    server.assert_alive("/small");
}

#[test]
fn slow_clients_are_let_go() {
    let place = Place::new();
    place.file("large", pattern(64 << 20));
    let timeouts = ["--head-timeout", "3", "--idle-timeout", "3", "--write-timeout", "1"];
    let server = place.serve(&[&timeouts[..], &["--admin", "127.0.0.1:0"]].concat());
    // Half a head, dripping: the deadline doesn't move.
    let mut dripping = server.connect();
    until("the end of a dripping head", || {
        std::thread::sleep(Duration::from_millis(100));
        dripping.stream.write_all(b"G").is_err()
    });
    let mut half = server.connect();
    half.send("GET / HTTP/1.1\r\nHost:");
    assert_eq!(half.receive(true).expect("told why").status, 408);
    assert!(half.is_closed());
    // A client that sends nothing at all, and one that sends nothing more.
    assert!(server.connect().is_closed());
    let mut idle = server.connect();
    assert_eq!(idle.get("/none", "").status, 404);
    assert!(idle.is_closed());
    // A client that reads nothing: what arrives isn't complete.
    let timed_out = "linerate_files_listener_timed_out_total";
    let before = server.metric(timed_out);
    assert_eq!(before, 4.0, "each of these once, and its lingering not again");
    let mut stalled = server.connect();
    stalled.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    until("the end of a stalled transfer", || server.metric(timed_out) > before);
    let (all, _) = stalled.rest();
    assert!(all.len() < 64 << 20, "{}", all.len());
}

#[test]
fn a_client_that_takes_a_little_at_a_time_is_served() {
    let place = Place::new();
    place.file("large", pattern(16 << 20));
    // Much less than it takes, and longer than a busy machine keeps a thread waiting.
    let server = place.serve(&["--write-timeout", "5"]);
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
    // Reading the head may have taken the first bytes along.
    assert!(taken > (16 << 20) - (128 << 10), "{taken}");
}

#[test]
fn readers_that_take_nothing_are_cut_where_draining_ends() {
    let place = Place::new();
    place.file("large", pattern(64 << 20));
    place.file("list/a", "a");
    let server = place.serve(&["--listing", "--drain-timeout", "1", "--write-timeout", "3600"]);
    let mut stalled = server.connect();
    stalled.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    stalled.receive_head().expect("a head");
    // Half a request, which doesn't count.
    let mut half = server.connect();
    half.send("GET /list/ HTTP/1.1\r\n");
    server.signal(Signal::TERM);
    assert!(server.wait(Duration::from_secs(60)).success());
    let (all, well) = stalled.rest();
    // A reset, so that nobody takes it for complete.
    assert!(!well && all.len() < 64 << 20, "{}", all.len());
    assert!(half.rest().0.is_empty());
}

#[test]
fn one_address_has_its_limits() {
    let place = Place::new();
    place.file("a", "a");
    let limits = ["--address-connections", "3", "--address-rate", "1", "--address-burst", "5"];
    let server = place.serve(&[&limits[..], &["--admin", "127.0.0.1:0"]].concat());
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    let start = Instant::now();
    let statuses: Vec<u16> = (0..30).map(|n| clients[n % 3].get("/a", "").status).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    let most = 6 + start.elapsed().as_secs() as usize;
    assert!((5..=most).contains(&served), "{served} of {most}: {statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    assert!(server.connect().is_closed(), "a fourth connection");
    // Under the listener's names.
    for (name, count) in [
        ("shed_total{reason=\"address\"}", 1.0),
        ("shed_total{reason=\"overall\"}", 0.0),
        ("accepted_total{protocol=\"http1\"}", 3.0),
    ] {
        assert_eq!(server.metric(&format!("linerate_files_listener_{name}")), count, "{name}");
    }
    clients.clear();
    until("a place again", || {
        let mut client = server.connect();
        // Whoever is let in gets an answer, even if it says that there were too many requests.
        client.stream.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").is_ok() && client.receive(true).is_ok()
    });
}

#[test]
fn a_large_transfer_does_not_hold_up_a_small_one() {
    const LARGE: u64 = 256 << 20;
    const LARGE_ONES: usize = 50;
    const SMALL: usize = 20;
    let place = Place::new();
    place.file("large", vec![1; LARGE as usize]);
    place.file("small", pattern(1_000));
    let server = place.serve(&["--workers", "1"]);
    let address = server.address();
    let (ended, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Not without end, if the test fails.
                for _ in 0..LARGE_ONES {
                    let bytes = taken(address, "/large");
                    assert!(bytes > LARGE);
                    ended.fetch_add(1, Ordering::Relaxed);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut client = server.connect();
        let mut between = 0;
        for _ in 0..SMALL {
            let before = ended.load(Ordering::Relaxed);
            assert!(client.get("/small", "").body == pattern(1_000));
            between += usize::from(ended.load(Ordering::Relaxed) == before);
        }
        assert!(ended.load(Ordering::Relaxed) < 4 * LARGE_ONES, "the large ones went first, all of them");
        over.store(true, Ordering::Relaxed);
        // The small transfers had their turns meanwhile, however fast or slow the machine is.
        assert!(between > SMALL / 2, "only {between} were answered before a large one ended");
    });
}

#[test]
fn a_client_that_never_pauses_does_not_hold_up_another() {
    // Endless requests, whose answers are read; and a body that nobody wants.
    let endless = "GET /none HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1000);
    let body =
        format!("POST /none HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999\r\n\r\n{}", "x".repeat(60_000));
    for (blast, again) in [(&*endless, &*endless), (&*body, &body[100..])] {
        let place = Place::new();
        place.file("small", pattern(1_000));
        let server = place.serve(&["--workers", "1"]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (mut client, done) = (server.connect(), &done);
                let mut answers = client.stream.try_clone().expect("a socket");
                scope.spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
                scope.spawn(move || {
                    let mut sent = client.stream.write_all(blast.as_bytes());
                    while sent.is_ok() && !done.load(Ordering::Relaxed) {
                        sent = client.stream.write_all(again.as_bytes());
                    }
                    let _ = client.stream.shutdown(std::net::Shutdown::Both);
                });
            }
            let mut client = server.connect();
            for _ in 0..20 {
                assert!(client.get("/small", "").body == pattern(1_000));
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
