//! Many requests of all kinds, from a client that others have written: the answers are the same with a fast path and
//! without it, and also from a service behind a pointer.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::{HeaderMap, Method, Request};
use listener::{Config, Endpoint};
use tokio::net::TcpStream;

use crate::fast_path;
use crate::server::Server;

/// A request: method, path, and a body.
type Ask = (Method, String, Bytes);

/// An answer, without what differs each time.
type Answer = (u16, HeaderMap, Bytes);

/// Deterministic noise.
struct Noise(u64);

impl Noise {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

fn asks(noise: &mut Noise, count: usize) -> Vec<Ask> {
    (0..count)
        .map(|n| {
            let get = |path: String| (Method::GET, path, Bytes::new());
            match noise.below(10) {
                0 => get("/".into()),
                1 => get("/none".into()),
                2 => (Method::POST, "/echo".into(), vec![b'e'; noise.below(40_000) as usize].into()),
                3 => (Method::HEAD, format!("/fast/{n}"), Bytes::new()),
                4 => get(format!("/fast/size/{}", noise.below(60_000))),
                5 => get(format!("/fast/size/{}", noise.below(2000))),
                6 => get(format!("/fast/shared/{}", noise.below(60_000))),
                _ => get(format!("/fast/{n}%20")),
            }
        })
        .collect()
}

/// Sends all requests, this many at a time.
async fn answers(address: SocketAddr, asks: &[Ask], at_once: usize) -> Vec<Answer> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (mut client, connection) = client::Builder::new()
        .initial_window_size(20_000)
        .initial_connection_window_size(100_000)
        .handshake::<_, Bytes>(stream)
        .await
        .expect("a connection");
    let connection = tokio::spawn(connection);
    let mut answers = Vec::new();
    for asks in asks.chunks(at_once) {
        let mut waiting = Vec::new();
        for ask in asks {
            client = client.ready().await.expect("there is room");
            waiting.push(tokio::spawn(answer(client.clone(), ask.clone())));
        }
        for waiting in waiting {
            answers.push(waiting.await.expect("no panic"));
        }
    }
    drop(client);
    connection.await.expect("no panic").expect("it ends as it should");
    answers
}

async fn answer(mut client: SendRequest<Bytes>, (method, path, body): Ask) -> Answer {
    let request = Request::builder().method(method).uri(format!("http://h{path}")).header("x-field", "value");
    let (response, mut stream) =
        client.send_request(request.body(()).expect("a request"), body.is_empty()).expect("it is sent");
    if !body.is_empty() {
        stream.send_data(body, true).expect("it is sent");
    }
    let (mut parts, mut body) = response.await.expect("an answer").into_parts();
    parts.headers.remove("date").expect("a date");
    parts.headers.remove("x-request-id");
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("a body");
        body.flow_control().release_capacity(data.len()).expect("it was received");
        all.extend_from_slice(&data);
    }
    (parts.status.as_u16(), parts.headers, all.into())
}

#[tokio::test]
async fn answers_are_the_same_with_a_fast_path_and_without() {
    let (server, answered) = fast_path::start(Config::default());
    let without = Server::start(Endpoint::h2c, Config::default());
    for (seed, at_once) in [(1, 1), (2, 7), (3, 100)] {
        let asks = asks(&mut Noise(seed), 400);
        let before = answered.load(Relaxed);
        let fast = answers(server.address, &asks, at_once).await;
        let slow = answers(without.address, &asks, at_once).await;
        for (ask, (fast, slow)) in asks.iter().zip(fast.iter().zip(&slow)) {
            assert!(fast == slow, "{} {}: {:?} {:?}", ask.0, ask.1, (fast.0, &fast.1), (slow.0, &slow.1));
        }
        let answered = answered.load(Relaxed) - before;
        assert!(answered > 150, "{answered} of {} were answered by the fast path", asks.len());
    }
}

#[tokio::test]
async fn answers_are_the_same_from_a_boxed_service() {
    let (boxed, plain) = (Server::start_boxed(), Server::start(Endpoint::h2c, Config::default()));
    let asks = asks(&mut Noise(4), 400);
    let from_boxed = answers(boxed.address, &asks, 7).await;
    let from_plain = answers(plain.address, &asks, 7).await;
    for (ask, (boxed, plain)) in asks.iter().zip(from_boxed.iter().zip(&from_plain)) {
        assert!(boxed == plain, "{} {}: {:?} {:?}", ask.0, ask.1, (boxed.0, &boxed.1), (plain.0, &plain.1));
    }
    let get = "GET /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(boxed.connect().send(get).answer(), plain.connect().send(get).answer());
}
