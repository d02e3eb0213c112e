//! What a panic costs, and whether clients that wait are served when draining starts. Only the crate's own tests have
//! hooks for this.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::sync::Barrier;
use std::thread::JoinHandle;

use listener::{Endpoint, Listener, WithFastPath};
use service::socket::Address;

use super::*;
use crate::link::NewLink;
use crate::store::Options;

/// The worker arrives at the first barrier when it pauses, and continues after the second.
static PAUSED: [Barrier; 2] = [Barrier::new(2), Barrier::new(2)];

/// Panics or pauses, if the code says so.
pub fn strike(code: &str) {
    assert_ne!(code, "panic-in-a-test", "as a test asks");
    if code == "pause-in-a-test" {
        for barrier in &PAUSED {
            barrier.wait();
        }
    }
}

/// A listener with one worker, and a link `abc`.
struct Fixture {
    front: Arc<Front>,
    address: SocketAddr,
    thread: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

/// A fixture for this many connections.
fn fixture(connections: usize) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(Options::new(&directory.path().join("links.db"))).unwrap();
    let target = "https://t.example/".to_owned();
    let link = NewLink { code: Some("abc".to_owned()), target, ..NewLink::default() };
    store.create(link, None).wait().unwrap();
    let front = Arc::new(Front {
        settings: Settings {
            root_target: None,
            unknown_host: UnknownHost::default(),
            favicon_target: None,
            robots: String::new(),
            redirect_body: false,
            redirect_max_age: 0,
            click_retention: Retention { days: None, hours: NonZero::<u32>::MIN },
        },
        store,
        cache: Arc::new(Cache::new(1 << 20)),
        click_buffer: ClickBuffer::default(),
        geoip: None,
        attempts: Attempts::default(),
        metrics: Arc::new(Metrics::new(1)),
        shutdown: Shutdown::new(),
    });
    let second = Duration::from_secs(1);
    let limits = Limits {
        connections,
        connections_per_address: 0,
        head_timeout: 10 * second,
        idle_timeout: 10 * second,
        drain_timeout: 60 * second,
    };
    let listener = Listener::new(listener::Config {
        endpoints: vec![Endpoint::plain("127.0.0.1:0".parse().unwrap())],
        workers: NonZero::new(1),
        ..limits.config()
    })
    .unwrap();
    let Address::Tcp(address) = listener.addresses()[0] else { panic!("it is one of TCP") };
    let service = HttpService::new(Arc::clone(&front), 1, TlsPolicy::default()).unwrap();
    let service = WithFastPath { fast: service.clone(), service };
    let thread = listener.start("links", service, &front.shutdown).unwrap();
    Fixture { front, address, thread, _directory: directory }
}

impl Fixture {
    /// Sends a request on a new connection.
    fn ask(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        stream
    }

    /// The answer to a request on a new connection, to its end.
    fn answer(&self, request: &str) -> String {
        rest(self.ask(request))
    }
}

/// Everything received, to the end.
fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn who_waits_when_draining_begins_is_served() {
    let fixture = fixture(100);
    let first = fixture.ask("GET /pause-in-a-test");
    PAUSED[0].wait();
    // When the worker continues, it learns of the shutdown before it learns of the waiting connections.
    fixture.front.shutdown.trigger();
    let last: Vec<TcpStream> = (0..80).map(|_| fixture.ask("GET /abc")).collect();
    PAUSED[1].wait();
    assert!(rest(first).starts_with("HTTP/1.1 404 "));
    for stream in last {
        let answer = rest(stream);
        assert!(answer.starts_with("HTTP/1.1 307 "), "{answer:?}");
    }
    fixture.thread.join().expect("the worker ends");
}

#[test]
fn a_panic_costs_its_connection_and_no_other() {
    let fixture = fixture(2);
    // More panics than there are connection slots, on the fast path and on the slow path.
    for request in ["GET /panic-in-a-test", "GET /%70anic-in-a-test"].repeat(4) {
        assert!(fixture.answer(request).starts_with("HTTP/1.1 500 "), "{request}");
        let answer = fixture.answer("GET /abc");
        assert!(answer.starts_with("HTTP/1.1 307 ") && answer.matches("HTTP/").count() == 1, "{answer:?}");
    }
    fixture.front.shutdown.trigger();
    fixture.thread.join().expect("the worker went on");
    fixture.front.close();
    let clicks = fixture.front.store.reader().unwrap().get("abc").unwrap().clicks;
    assert_eq!(clicks, 8, "each visit is counted, and no more");
}

#[test]
fn a_worker_that_ends_takes_the_service_down() {
    let fixture = fixture(2);
    assert!(fixture.answer("GET /abc").starts_with("HTTP/1.1 307 "), "it has a clock from here on");
    fixture.front.store.close();
    fixture.front.metrics.worker(0).panic_at_next_tick();
    let wait = fixture.front.shutdown.wait();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(wait);
    fixture.thread.join().expect("the listener drains");
    assert!(fixture.front.shutdown.outcome().is_err(), "who waits for it learns of it");
}

#[test]
fn clicks_on_many_links_are_written_less_often() {
    for (counts, millis) in [(0, 750), (3_000, 750), (10_000, 2_500), (12_000, 3_000), (usize::MAX, 3_000)] {
        assert_eq!(pause(counts), Duration::from_millis(millis), "after {counts} counts");
    }
}
