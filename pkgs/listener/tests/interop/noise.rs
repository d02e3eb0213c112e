//! Malformed input is answered with an error or cut off, and nobody else notices.

use crate::raw::{self, END_HEADERS, END_STREAM, PREFACE, Raw, frame, kind};
use crate::server::Server;

/// Numbers that are the same in every run (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    /// `valid` with some bytes changed, some missing and some twice.
    fn spoil(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            match self.below(4) {
                _ if bytes.is_empty() => {}
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.below(256) as u8,
                2 => bytes.truncate(at),
                _ => {
                    let piece = bytes[at..bytes.len().min(at + 20)].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }
}

fn still_serves(server: &Server) {
    let mut raw = Raw::connect(server.clear);
    raw.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("the server listens");
    let answer = raw.rest();
    assert_eq!(raw::status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn malformed_http1_is_refused() {
    let server = Server::start(&[]);
    let many = "a: b\r\n".repeat(101);
    let long = format!("a: {}\r\n", "b".repeat(20_000));
    let path = format!("/{}", "p".repeat(20_000));
    let (get, post) = ("GET / HTTP/1.1\r\nhost: x\r\n", "POST /read HTTP/1.1\r\nhost: x\r\n");
    let chunked = format!("{post}transfer-encoding: chunked\r\n\r\n");
    for (what, request, allowed) in [
        ("no host", "GET / HTTP/1.1\r\n\r\n".to_owned(), &[400][..]),
        ("two hosts", format!("{get}host: y\r\n\r\n"), &[400]),
        ("a version there is not", "GET / HTTP/1.7\r\nhost: x\r\n\r\n".into(), &[400, 505]),
        ("a version too new", "GET / HTTP/4.0\r\nhost: x\r\n\r\n".into(), &[400, 505]),
        ("no version", "GET /\r\n\r\n".into(), &[400, 505]),
        ("no path", "GET HTTP/1.1\r\nhost: x\r\n\r\n".into(), &[400]),
        ("a method that is none", "G(T / HTTP/1.1\r\nhost: x\r\n\r\n".into(), &[400]),
        ("a space before a colon", format!("{get}a : b\r\n\r\n"), &[400]),
        ("a folded field", format!("{get}a: b\r\n c\r\n\r\n"), &[400]),
        ("a field without a colon", format!("{get}nothing\r\n\r\n"), &[400]),
        ("a zero byte", format!("{get}a: b\0c\r\n\r\n"), &[400]),
        ("a lone carriage return", format!("{get}a: b\rc\r\n\r\n"), &[400]),
        ("too many fields", format!("{get}{many}\r\n"), &[431]),
        ("fields too long", format!("{get}{long}\r\n"), &[431]),
        ("a target too long", format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"), &[414, 431]),
        ("two lengths", format!("{post}content-length: 1\r\ncontent-length: 2\r\n\r\nab"), &[400]),
        ("a length with a sign", format!("{post}content-length: +1\r\n\r\na"), &[400]),
        ("a length below zero", format!("{post}content-length: -1\r\n\r\na"), &[400]),
        ("a length that is a list", format!("{post}content-length: 1, 2\r\n\r\nab"), &[400]),
        ("a length that is a word", format!("{post}content-length: one\r\n\r\na"), &[400]),
        ("a length beyond counting", format!("{post}content-length: {}0\r\n\r\n", u64::MAX), &[400, 413]),
        (
            "a length beside a coding",
            format!("{post}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
            &[400],
        ),
        ("a coding nobody knows", format!("{post}transfer-encoding: unknown\r\n\r\n"), &[400, 501]),
        ("chunked not last", format!("{post}transfer-encoding: chunked, gzip\r\n\r\n"), &[400, 501]),
        ("a chunk of no size", format!("{chunked}zz\r\nab\r\n0\r\n\r\n"), &[400]),
        ("a chunk beyond counting", format!("{chunked}fffffffffffffffff\r\nab"), &[400]),
        ("a chunk without an end", format!("{chunked}2\r\nabcd0\r\n\r\n"), &[400]),
        ("a handshake of TLS", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{3}\u{3}\r\n\r\n".into(), &[400]),
        ("a body too long", format!("{post}content-length: 3000000\r\n\r\n"), &[413]),
    ] {
        let mut raw = Raw::connect(server.clear);
        raw.send(request.as_bytes()).expect("the server listens");
        let answer = raw.rest();
        let status = raw::status(&answer);
        assert!(
            status.is_some_and(|status| allowed.contains(&status)),
            "{what}: {status:?}, not {allowed:?}: {:?}",
            String::from_utf8_lossy(&answer)
        );
    }
    still_serves(&server);
}

#[test]
fn http1_survives_noise() {
    let server = Server::start(&["--patience", "1000"]);
    let mut chance = Chance(1);
    let valid = b"POST /read HTTP/1.1\r\nhost: x\r\nuser-agent: noise\r\ntransfer-encoding: chunked\r\n\r\n\
        5\r\nhello\r\n0\r\n\r\nGET /peer HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    for _ in 0..300 {
        let bytes = match chance.below(3) {
            0 => {
                let count = chance.below(400);
                chance.bytes(count)
            }
            _ => chance.spoil(valid),
        };
        let mut raw = Raw::connect(server.clear);
        // The server may close the connection before everything is sent.
        let _ = raw.send(&bytes);
        raw.finish();
        raw.rest();
    }
    still_serves(&server);
}

#[test]
fn http2_survives_noise() {
    let server = Server::start(&["--patience", "1000"]);
    let mut chance = Chance(2);
    let frames = [
        frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]),
        frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, raw::GET),
        frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 16, 0]),
        frame(kind::HEADERS, END_HEADERS, 3, raw::POST_WAITING),
        frame(kind::DATA, 0, 3, b"hello"),
        frame(kind::PING, 0, 0, b"12345678"),
        frame(kind::HEADERS, 0, 5, &raw::GET[..3]),
        frame(kind::CONTINUATION, END_HEADERS, 5, &raw::GET[3..]),
        frame(kind::RST_STREAM, 0, 3, &[0, 0, 0, 8]),
    ];
    for _ in 0..300 {
        let mut bytes = PREFACE.to_vec();
        for _ in 0..8 {
            let valid = &frames[chance.below(frames.len())];
            match chance.below(4) {
                0 => bytes.extend(chance.spoil(valid)),
                1 => {
                    let (kind, flags) = (chance.below(16) as u8, chance.below(256) as u8);
                    let payload = chance.below(40);
                    let payload = chance.bytes(payload);
                    bytes.extend(frame(kind, flags, chance.below(8) as u32, &payload));
                }
                _ => bytes.extend(valid),
            }
        }
        let mut raw = Raw::connect(server.clear);
        // The server may close the connection before everything is sent.
        let _ = raw.send(&bytes);
        raw.finish();
        raw.rest();
    }
    still_serves(&server);
}
