//! The server keeps what clients do not read or acknowledge, up to a total limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::change::sockets;
use crate::client::{ClientProtocol, Target};
use crate::load::PATIENCE;
use crate::raw::{self, END_HEADERS, END_STREAM, Raw, frame, kind};
use crate::server::Server;

const CLIENTS: u64 = 4;
/// The limit of all clients together.
const SUM: u64 = 256 << 10;
/// What each client may have beyond that over HTTP/3, including what the service has made for it and has not sent yet.
const EACH: u64 = (32 << 10) + (64 << 10);
/// Enough bytes for every window to grow to its maximum.
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

/// Streams of each client over HTTP/2.
const STREAMS: u32 = 100;
/// What the kernel may keep for a connection on loopback.
const KERNEL: u64 = 4 << 20;

#[test]
fn what_nobody_reads_of_many_streams_has_a_sum() {
    let server = Server::start(&["--answer-bytes-total", &SUM.to_string()]);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut raw = Raw::connect(server.clear);
        // All windows are as wide as possible (RFC 9113, sections 6.5.2 and 6.9): SETTINGS_INITIAL_WINDOW_SIZE is 4.
        let mut sent = [
            raw::PREFACE,
            &frame(kind::SETTINGS, 0, 0, b"\x00\x04\x7f\xff\xff\xff"),
            &frame(kind::WINDOW_UPDATE, 0, 0, &(i32::MAX - 65_535).to_be_bytes()),
        ]
        .concat();
        for stream in 0..STREAMS {
            let head = b"\x82\x86\x44\x11/bytes/1073741824\x41\x09localhost";
            sent.extend(frame(kind::HEADERS, END_HEADERS | END_STREAM, 2 * stream + 1, head));
        }
        raw.send(&sent).expect("the server listens");
        clients.push(raw);
    }
    // Waits until nothing more is made.
    let begun = Instant::now();
    let mut before = 0;
    let all = loop {
        std::thread::sleep(Duration::from_millis(100));
        let all = made(&server);
        if all > 0 && all == before {
            break all;
        }
        before = all;
        assert!(begun.elapsed() < PATIENCE, "it goes on making");
    };
    // The service makes its body in parts of twice the size of a piece.
    let most = CLIENTS * KERNEL + 2 * (SUM + CLIENTS * (64 << 10));
    assert!(all <= most, "{all} bytes are made, {most} may be");
    // A client that reads gets a whole answer, as one stream after the other gets room.
    let mut raw = Raw::http2(server.clear);
    let head = b"\x82\x86\x44\x0c/bytes/60000\x41\x09localhost";
    raw.send(&frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, head)).expect("the server listens");
    let mut told = Vec::new();
    while told.iter().filter(|byte| **byte == b'0').count() < 60_000 {
        let mut more = [0; 16_384];
        let count = std::io::Read::read(&mut raw.0, &mut more).expect("an answer");
        assert!(count > 0, "it is closed");
        told.extend_from_slice(&more[..count]);
    }
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
    // A client that acknowledges gets all of an answer.
    let target = Target::new(server.clear, server.secure, &certificates);
    let mut connection = target.connect(ClientProtocol::Http3).await.expect("it listens");
    let (status, body) = connection.ask(&format!("/bytes/{BEFORE}")).await.expect("an answer");
    assert_eq!((status.as_u16(), body.len() as u64), (200, BEFORE));
}
