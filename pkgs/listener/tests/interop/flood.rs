//! Floods are shed while others are served.

use crate::client::{ClientProtocol, Target};
use crate::load::{Load, LoadRequest};
use crate::raw::{self, END_HEADERS, END_STREAM, Raw, frame, kind};
use crate::server::Server;

/// The most that a server may accept of a flood before it closes the connection.
const MOST: usize = 32 << 20;
/// A server's peak memory limit, in KiB.
const MEMORY: u64 = 96 << 10;

/// Floods a server with what `next` makes while another client's requests are answered.
async fn flood(what: &str, mut next: impl FnMut(usize) -> Vec<u8> + Send + 'static) {
    let server = Server::start(&[]);
    let target = Target::new(server.clear, server.secure, &[]);
    let other = Load::start(&target, ClientProtocol::Http1, 2, LoadRequest::of("/", "Hello, World!"));
    let address = server.clear;
    let flood = tokio::task::spawn_blocking(move || Raw::http2(address).flood(MOST, &mut next));
    other.answers(100).await;
    flood.await.unwrap_or_else(|_| panic!("{what} is not shed"));
    other.answers(100).await;
    other.end().await;
    let used = server.peak() / 1024;
    assert!(used < MEMORY, "{what}: {used} KiB");
}

/// The number of the client's stream in this turn.
fn stream(turn: usize) -> u32 {
    turn as u32 * 2 + 1
}

#[tokio::test]
async fn requests_that_are_reset_at_once() {
    // CVE-2023-44487.
    flood("a rapid reset", |turn| {
        let stream = stream(turn);
        let head = frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, raw::GET);
        [head, frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    })
    .await;
}

#[tokio::test]
async fn requests_the_server_is_made_to_reset() {
    // CVE-2025-8671: an increment of zero is an error of the stream (RFC 9113, section 6.9).
    flood("a made reset", |turn| {
        let stream = stream(turn);
        let head = frame(kind::HEADERS, END_HEADERS, stream, raw::POST_WAITING);
        [head, frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    })
    .await;
}

#[tokio::test]
async fn heads_that_never_end() {
    // CVE-2024-27316.
    let field = [&b"\x00\x01x\x7f\x80\x7e"[..], &[b'y'; 16_255]].concat();
    flood("a flood of CONTINUATION", move |turn| match turn {
        0 => frame(kind::HEADERS, 0, 1, raw::GET),
        _ => frame(kind::CONTINUATION, 0, 1, &field),
    })
    .await;
    flood("a flood of empty CONTINUATION", |turn| match turn {
        0 => frame(kind::HEADERS, 0, 1, raw::GET),
        _ => frame(kind::CONTINUATION, 0, 1, b"").repeat(1_000),
    })
    .await;
}

#[tokio::test]
async fn frames_that_ask_for_an_answer() {
    // CVE-2019-9512 and CVE-2019-9515: nobody reads the answers.
    flood("a flood of PING", |_| frame(kind::PING, 0, 0, b"12345678").repeat(1_000)).await;
    flood("a flood of SETTINGS", |_| frame(kind::SETTINGS, 0, 0, b"").repeat(1_000)).await;
}

#[tokio::test]
async fn more_streams_than_allowed() {
    flood("a flood of streams", |turn| frame(kind::HEADERS, END_HEADERS, stream(turn), raw::POST_WAITING))
        .await;
}
