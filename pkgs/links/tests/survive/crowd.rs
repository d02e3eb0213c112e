//! Thousands of clients that wait, hundreds that send one byte at a time, and bodies that never arrive: others are
//! served as usual.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::http::Client;
use crate::server::{Place, Server, alone};
use testkit::until;

const IDLE: u64 = 5000;
const SLOW: usize = 200;

/// Files that this process and the server need, apart from the sockets of these clients.
const SPARE: u64 = 500;

/// The server's `--head-timeout`.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest that a test may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A connection that sends one byte at a time, and when it started.
struct Slow {
    begun: Instant,
    stream: TcpStream,
}

impl Slow {
    fn connect(server: &Server) -> Self {
        Self { begun: Instant::now(), stream: TcpStream::connect(server.public).expect("the server listens") }
    }
}

/// Sends one byte a second on each connection, until the server has closed all of them. Returns how long each lasted.
fn drip(mut slow: Vec<Slow>) -> Vec<Duration> {
    let started = Instant::now();
    let mut lasted = Vec::new();
    while !slow.is_empty() && started.elapsed() < PATIENCE {
        slow.retain_mut(|slow| {
            let open = slow.stream.write_all(b"G").is_ok();
            if !open {
                lasted.push(slow.begun.elapsed());
            }
            open
        });
        std::thread::sleep(Duration::from_secs(1));
    }
    lasted
}

#[test]
fn idle_and_slow_connections_do_not_hold_others_up() {
    let _alone = alone();
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let idle = IDLE.min(files.saturating_sub(SPARE + SLOW as u64));
    if idle < IDLE {
        let _ = writeln!(std::io::stderr(), "REDUCED to {idle} idle connections: ulimit -n is {files}");
    }
    let place = Place::new();
    let server = place.serve(&["--head-timeout", "3", "--idle-timeout", "600"]);
    assert_eq!(server.api().create("abc", "https://t.example/").unwrap(), 201);
    let mut client = server.connect();
    for _ in 0..100 {
        assert_eq!(client.get("abc").unwrap().status, 307);
    }
    let before = server.anonymous();

    // These are idle between requests, like browsers. They have sent one request.
    let mut crowd: Vec<Client> = (0..idle)
        .map(|_| {
            let mut waiting = server.connect();
            assert_eq!(waiting.get("abc").unwrap().status, 307);
            waiting
        })
        .collect();
    let slow = (0..SLOW).map(|_| Slow::connect(&server)).collect();
    let (mut took, lasted) = std::thread::scope(|scope| {
        let dripping = scope.spawn(|| drip(slow));
        let took: Vec<_> = (0..500)
            .map(|_| {
                let started = Instant::now();
                assert_eq!(client.get("abc").unwrap().status, 307);
                // The requests are spread over the time in which the slow clients are connected.
                std::thread::sleep(Duration::from_millis(5));
                started.elapsed() - Duration::from_millis(5)
            })
            .collect();
        let grown = server.anonymous().saturating_sub(before);
        assert!(grown < 40 << 20, "{} KiB for {idle} idle connections", grown >> 10);
        (took, dripping.join().unwrap())
    });
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100];
    // A client that waited behind the slow ones would wait until they are closed.
    assert!(p99 < HEAD_TIMEOUT, "p99 is {p99:?}");
    assert_eq!(lasted.len(), SLOW, "the rest was not cut off");
    assert!(lasted.iter().all(|&time| time >= HEAD_TIMEOUT - Duration::from_secs(1)), "cut off early");
    assert_eq!(crowd[0].get("abc").unwrap().status, 307, "who waited is served too");
    server.stop();
}

/// The largest body in the API, and how many of these fill the room for all bodies.
const BODY: usize = 8 << 20;
const BODIES: usize = 8;

#[test]
fn bodies_that_are_announced_to_the_api_and_do_not_come_have_a_sum() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut api = server.api();
    let mut begun: Vec<_> = (0..BODIES)
        .map(|_| {
            let mut stream = TcpStream::connect(server.admin).expect("the server listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
            let head = format!(
                "POST /api/v1/links/batch HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nContent-Type: \
                 application/json\r\nContent-Length: {BODY}\r\nExpect: 100-continue\r\n\r\n",
                server.token
            );
            stream.write_all(head.as_bytes()).expect("it is read");
            // A client gets `100 Continue` once its body has a place.
            let mut told = [0; 25];
            stream.read_exact(&mut told).expect("an answer");
            assert_eq!(told.escape_ascii().to_string(), r"HTTP/1.1 100 Continue\r\n\r\n");
            stream
        })
        .collect();
    let refused = api.add(&serde_json::json!({ "code": "a", "target": "https://t.example/" }));
    assert_eq!(refused.expect("an answer"), 503);
    // Requests without a body need no room. Visitors have their own limit.
    assert_eq!(api.ask("GET", "/a", "").expect("an answer").status, 404);
    assert_eq!(server.connect().get("a").expect("an answer").status, 404);
    drop(begun.pop());
    until("there is room again", || {
        server.api().create("a", "https://t.example/").expect("an answer") == 201
    });
    server.stop();
}
