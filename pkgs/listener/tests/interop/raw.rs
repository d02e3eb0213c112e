//! Connections that send exactly what they are given.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::load::PATIENCE;

/// The connection preface, which an HTTP/2 client sends first (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113, section 6).
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// `GET /`, and `POST /wait/20000`, in HPACK (RFC 7541).
pub const GET: &[u8] = b"\x82\x86\x84\x41\x09localhost";
pub const POST_WAITING: &[u8] = b"\x83\x86\x44\x0b/wait/20000\x41\x09localhost";

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection.
pub struct Raw(pub TcpStream);

impl Raw {
    /// Connects; reading and writing fail when they take too long.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        Self(stream)
    }

    /// Connects and starts HTTP/2, with default settings.
    pub fn http2(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address);
        raw.send(PREFACE).expect("the server listens");
        raw.send(&frame(kind::SETTINGS, 0, 0, b"")).expect("the server listens");
        raw
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Says that nothing more comes.
    pub fn finish(&mut self) {
        // The server may have closed it already.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Everything the server still sends until it closes the connection, which it has to.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        match self.0.read_to_end(&mut all) {
            Err(error) if is_slow(&error) => panic!("not closed, after {:?}", String::from_utf8_lossy(&all)),
            // A reset is also fine.
            _ => all,
        }
    }

    /// Sends what `next` makes until the server closes the connection, which it must have done before `most` bytes;
    /// reads nothing meanwhile. Returns how many bytes were sent.
    pub fn flood(&mut self, most: usize, mut next: impl FnMut(usize) -> Vec<u8>) -> usize {
        let mut sent = 0;
        for turn in 0.. {
            let bytes = next(turn);
            match self.send(&bytes) {
                Ok(()) => sent += bytes.len(),
                Err(error) if is_slow(&error) => panic!("neither read nor closed after {sent} bytes"),
                Err(_) => return sent,
            }
            assert!(sent < most, "the server takes more than {most} bytes");
        }
        unreachable!("turns have no end")
    }
}

/// Whether an error means that nothing happened in time.
pub fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The status of the response at the start of `bytes`.
pub fn status(bytes: &[u8]) -> Option<u16> {
    let line = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(line).ok()?.parse().ok()
}
