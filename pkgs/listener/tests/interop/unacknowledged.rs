//! What clients over HTTP/3 do not acknowledge is kept by the server, and has a sum.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::change::sockets;
use crate::client::{ClientProtocol, Target};
use crate::load::PATIENCE;
use crate::raw::{self, Raw};
use crate::server::Server;

const CLIENTS: u64 = 4;
/// What all of them may have together.
const SUM: u64 = 256 << 10;
/// What each has beyond that, and what the service has made for it, which is not sent yet.
const EACH: u64 = (32 << 10) + (64 << 10);
/// Enough for any window to grow to its most.
const BEFORE: u64 = 2 << 20;

/// A path to a server on which nothing passes once it is cut.
struct Path {
    address: SocketAddr,
    /// The bytes that have arrived at the client.
    passed: Arc<AtomicU64>,
    cut: Arc<AtomicBool>,
}

impl Path {
    async fn new(server: SocketAddr) -> Self {
        let (front, back) = sockets(server).await;
        let address = front.local_addr().expect("an address");
        let (passed, cut) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, closed) = (Arc::clone(&passed), Arc::clone(&cut));
        tokio::spawn(async move {
            let (mut client, mut sent, mut received) = (server, [0; 2_000], [0; 65_535]);
            loop {
                tokio::select! {
                    Ok((count, from)) = front.recv_from(&mut sent) => {
                        client = from;
                        if !closed.load(SeqCst) {
                            let _ = back.send(&sent[..count]).await;
                        }
                    }
                    Ok(count) = back.recv(&mut received) => {
                        if !closed.load(SeqCst) && front.send_to(&received[..count], client).await.is_ok() {
                            counted.fetch_add(count as u64, SeqCst);
                        }
                    }
                }
            }
        });
        Self { address, passed, cut }
    }
}

/// What the service has made for all clients so far.
fn made(server: &Server) -> u64 {
    let mut raw = Raw::connect(server.clear);
    raw.send(b"GET /made HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("the server listens");
    let told = raw.rest();
    assert_eq!(raw::status(&told), Some(200));
    let text = String::from_utf8(told).expect("text");
    text.rsplit("\r\n").next().and_then(|count| count.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_acknowledges_has_a_sum() {
    let server = Server::start(&["--answer-bytes-total", &SUM.to_string()]);
    let certificates = server.certificate.all();
    let mut paths = Vec::new();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let path = Path::new(server.secure).await;
        let target = Target::new(server.clear, path.address, &certificates);
        clients.spawn(async move {
            let mut connection = target.connect(ClientProtocol::Http3).await.expect("it listens");
            connection.ask(&format!("/bytes/{}", 1_u64 << 30)).await.map(drop)
        });
        paths.push(path);
    }
    let begun = Instant::now();
    while paths.iter().any(|path| path.passed.load(SeqCst) < BEFORE) {
        assert!(begun.elapsed() < PATIENCE, "they take nothing");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // From here on, nobody acknowledges anything, and all that the server makes is kept.
    paths.iter().for_each(|path| path.cut.store(true, SeqCst));
    let made = tokio::task::block_in_place(|| made(&server));
    let passed: u64 = paths.iter().map(|path| path.passed.load(SeqCst)).sum();
    let most = SUM + CLIENTS * EACH;
    assert!(made.saturating_sub(passed) <= most, "{made} bytes are made, {passed} have arrived");
    clients.abort_all();
    // Who acknowledges gets all of it.
    let target = Target::new(server.clear, server.secure, &certificates);
    let mut connection = target.connect(ClientProtocol::Http3).await.expect("it listens");
    let (status, body) = connection.ask(&format!("/bytes/{BEFORE}")).await.expect("an answer");
    assert_eq!((status.as_u16(), body.len() as u64), (200, BEFORE));
}
