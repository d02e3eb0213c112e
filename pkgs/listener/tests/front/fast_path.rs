//! A fast path, which answers plain requests without a request object, beside the service that gets the others.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use listener::{Config, Exchange, FastAnswer, FastPath, Limits};
use request_head::{Lines, Message};

use crate::server::{PATIENCE, Server};

/// Answers what starts with `/fast`, panics at `/fast/panic`, and declines the rest.
#[derive(Clone, Default)]
struct Fast {
    answered: Arc<AtomicUsize>,
}

/// The answer for `/fast` and what follows it: that text, or this many bytes for `/fast/size/BYTES`. Those of
/// `/fast/shared/BYTES` are not appended to the head.
pub fn body(rest: &str) -> String {
    let size = rest.strip_prefix("/size/").or_else(|| rest.strip_prefix("/shared/"));
    let size = size.and_then(|size| size.parse().ok());
    size.map_or_else(|| rest.to_owned(), |size| "x".repeat(size))
}

impl FastPath for Fast {
    fn answer(
        &mut self,
        head: &Lines<'_, '_>,
        exchange: &Exchange<'_>,
        out: &mut Vec<u8>,
    ) -> Option<FastAnswer> {
        let rest = head.target.strip_prefix("/fast")?;
        let mut message = Message::new(head.old);
        for field in head.fields {
            message.takes(field.name, field.value).ok()?;
        }
        let message = message.settle().ok()?;
        let connection = exchange.connection(message.keep_alive);
        let body = body(rest);
        out.extend_from_slice(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", body.len()).as_bytes());
        assert_ne!(rest, "/panic", "as a test asks");
        exchange.end(out, connection);
        self.answered.fetch_add(1, Relaxed);
        if head.method == "HEAD" {
            return Some(connection.into());
        }
        if rest.starts_with("/shared/") {
            return Some(FastAnswer { connection, body: body.into() });
        }
        out.extend_from_slice(body.as_bytes());
        Some(connection.into())
    }
}

pub fn start(config: Config) -> (Server, Arc<AtomicUsize>) {
    let fast = Fast::default();
    let answered = Arc::clone(&fast.answered);
    (Server::start_beside(fast, config), answered)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

#[test]
fn answers_of_both_come_in_the_order_of_their_requests() {
    let (server, answered) = start(Config::default());
    let mut client = server.connect();
    client.send(["/fast/1", "/slow", "/fast/2", "/none", "/fast/3", "/"].map(get).concat());
    for (status, body) in
        [(200, "/1"), (200, "slow"), (200, "/2"), (404, "no such thing"), (200, "/3"), (200, "Hello, World!")]
    {
        assert_eq!(client.answer(), (status, body.into()));
    }
    assert_eq!(answered.load(Relaxed), 3);
    // A request that is declined because of its head is refused as usual, and what follows it isn't served.
    client.send(["GET /fast/4 HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", &get("/fast/5")].concat());
    assert_eq!(client.answer().0, 400);
    assert!(client.rest().is_empty());
    assert_eq!(answered.load(Relaxed), 3);
}

#[test]
fn a_pipeline_whose_answers_are_not_taken_waits_for_its_client() {
    let (server, answered) = start(Config::default());
    let length = server.connect().send(get("/fast/1")).head().len() + "/1".len();
    let client = server.connect();
    let count = 200_000;
    let (requests, mut sending) =
        (get("/fast/1").repeat(count), crate::server::Client(client.0.try_clone().expect("a clone")));
    let sender = std::thread::spawn(move || {
        sending.send(requests);
    });
    // Some MiB are in the sockets' buffers, and at most SEND_BYTES beyond that.
    let mut before = usize::MAX;
    while before != answered.load(Relaxed) || before == 0 {
        before = answered.load(Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    assert!(before < count, "all were answered, though nobody reads");
    let mut client = client;
    let mut all = vec![0; count * length];
    client.0.read_exact(&mut all).expect("all answers");
    assert_eq!(all.windows(6).filter(|part| part == b"\r\n\r\n/1").count(), count);
    sender.join().expect("no panic");
}

#[test]
fn a_head_in_pieces_is_whole_before_it_is_asked_for() {
    let (server, answered) = start(Config::default());
    let mut client = server.connect();
    for byte in get("/fast/piece").bytes() {
        client.send([byte]);
    }
    assert_eq!(client.answer(), (200, "/piece".into()));
    let limits = Limits { head_time: std::time::Duration::from_millis(300), ..Limits::default() };
    let (server, _) = start(Config { limits, ..Config::default() });
    let mut client = server.connect();
    client.send(get("/fast/1")).send("GET /fast/2 HT");
    assert_eq!(client.answer().0, 200);
    assert_eq!(client.answer().0, 408, "who begins a request has to end it");
    assert_eq!(answered.load(Relaxed), 1);
}

#[test]
fn who_wants_the_connection_closed_gets_one_answer() {
    let (server, answered) = start(Config::default());
    let mut client = server.connect();
    client.send("GET /fast/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned() + &get("/fast/2"));
    let all = String::from_utf8(client.rest()).expect("text");
    assert!(all.contains("connection: close\r\n") && all.ends_with("\r\n\r\n/1"), "{all}");
    assert!(all.contains("\r\ndate: "), "{all}");
    assert_eq!(answered.load(Relaxed), 1);
}

#[test]
fn a_panic_leaves_nothing_of_its_answer_and_costs_one_connection() {
    let (server, _) = start(Config::default());
    let (mut client, mut other) = (server.connect(), server.connect());
    client.send([get("/fast/1"), get("/fast/panic"), get("/fast/2")].concat());
    assert_eq!(client.answer(), (200, "/1".into()));
    assert_eq!(client.answer().0, 500);
    assert!(client.rest().is_empty());
    assert_eq!(other.send(get("/fast/1")).answer().0, 200);
}

#[test]
fn who_asks_while_it_drains_is_answered_and_sent_away() {
    let config = Config { drain: PATIENCE, drain_grace: PATIENCE, ..Config::default() };
    let (server, _) = start(config);
    let mut client = server.connect();
    assert_eq!(client.send(get("/fast/1")).answer().0, 200);
    server.stop();
    // Requests are answered as usual until the worker has received that.
    while !client.send(get("/fast/2")).head().contains("connection: close\r\n") {}
    assert!(client.rest().is_empty());
    server.wait();
}
