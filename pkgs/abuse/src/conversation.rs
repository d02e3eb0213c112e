//! What one client sends on one connection, made from a few bytes: requests in a row, well-formed or not, split into
//! pieces anywhere.
//!
//! A fuzzer mutates such bytes better than HTTP itself, and a test draws them at random.

use std::io::{self, Read, Write};
use std::iter::{once, repeat_n};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::model::{self, Rules};

/// Longer than any of this takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is silent for this long sends nothing more. A conversation only waits for it if an answer is missing.
const SILENCE: Duration = Duration::from_secs(10);

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// All received bytes.
    pub bytes: Vec<u8>,
    /// Whether the connection was reset. A reset discards bytes that haven't been read yet.
    pub reset: bool,
}

impl Heard {
    /// Like [`model::hold`], except that a client may get a reset if it sends more after a request that closes the
    /// connection: it must not do that (RFC 9112, section 9.6).
    ///
    /// # Errors
    /// As for [`model::hold`].
    pub fn hold(
        &self,
        sent: &[u8],
        rules: &Rules,
        fits: impl Fn(&model::ParsedRequest, &model::Answer) -> Result<(), String>,
    ) -> Result<(), String> {
        let steps = model::steps(sent, rules);
        let last = steps.iter().position(|step| matches!(step, model::Step::Request(asked) if !asked.keep));
        if self.reset && last.is_some_and(|last| last + 1 < steps.len()) {
            return Ok(());
        }
        model::hold(sent, &self.bytes, rules, fits)
    }
}

/// The bytes to send, and where they are split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Where each further piece starts, in ascending order.
    cuts: Vec<usize>,
}

const METHODS: [&str; 8] = ["GET", "GET", "GET", "HEAD", "POST", "POST", "OPTIONS", "PUT"];

/// Headers to send beside or instead of Host.
const FIELDS: [&str; 24] = [
    "",
    "",
    "",
    "",
    "",
    "",
    "Accept: text/html\r\n",
    "Connection: keep-alive\r\n",
    "Connection: close\r\n",
    "connection: Close, TE\r\n",
    "Connection: keep-alive, close\r\n",
    "User-Agent: someone \"quoted\" \u{e9}\r\n",
    "Referer: https://r.example/\r\n",
    "X-Empty:\r\n",
    "X-Tab:\ta\t b \r\n",
    "Host: 127.0.0.1\r\n",
    "Expect: more\r\n",
    "Expect: 100-continue\r\n",
    "X: folded\r\n on\r\n",
    "X: bare\n",
    "X : space\r\n",
    "X: a\rb\r\n",
    "Content-Type: application/json\r\n",
    "Upgrade: h2c\r\n",
];

/// Headers that give the length of the body, each with a body.
const FRAMINGS: [(&str, &str); 24] = [
    ("", ""),
    ("", ""),
    ("", ""),
    ("", ""),
    ("", ""),
    ("", ""),
    ("", ""),
    ("Content-Length: 0\r\n", ""),
    ("Content-Length: 5\r\n", "12345"),
    ("Content-Length: 31\r\n", "GET /loot HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("Content-Length: 5\r\n", "123456"),
    ("Content-Length: 9\r\n", "12345"),
    ("Content-Length: +5\r\n", "12345"),
    ("Content-Length: 5\r\nContent-Length: 5\r\n", "12345"),
    ("Content-Length: 5, 5\r\n", "12345"),
    ("Content-Length: 99999999999999999999\r\n", "12345"),
    ("Transfer-Encoding: chunked\r\n", "5\r\n12345\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "1F\r\nGET /loot HTTP/1.1\r\nHost: h\r\n\r\n\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "5;a=\"b\"\r\n12345\r\n0\r\nT: u\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "5\r\n123456\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\n", "5\n12345\n0\n\n"),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "5\r\n12345\r\n0\r\n\r\n"),
    ("Transfer-Encoding: gzip, chunked\r\n", "5\r\n12345\r\n0\r\n\r\n"),
    ("Expect: 100-continue\r\nContent-Length: 5\r\n", "12345"),
];

/// Fragments of requests.
const PIECES: [&str; 16] = [
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    " ",
    "\t",
    ":",
    "0\r\n\r\n",
    "GET ",
    " HTTP/1.1",
    " HTTP/1.0",
    "Host: localhost\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\u{0}",
    "\u{e9}",
    "GET /loot HTTP/1.1\r\nHost: h\r\n\r\n",
];

impl Conversation {
    /// The conversation that `program` encodes. Its targets are mostly from this list.
    #[must_use]
    pub fn new(program: &[u8], targets: &[&str]) -> Self {
        let mut program = program.iter().copied();
        let mut made = Self::default();
        while let Some(operation) = program.next() {
            let mut next = || program.next().map_or(0, usize::from);
            match operation {
                0..=0xaf => {
                    let target = targets[usize::from(operation) % targets.len()];
                    made.request(target, [next(), next(), next(), next()]);
                }
                0xb0..=0xcf => made.cuts.push(made.bytes.len()),
                0xd0..=0xdf => made.say(PIECES[usize::from(operation & 15)]),
                0xe0..=0xe7 => made.bytes.push(next() as u8),
                0xe8..=0xef => made.bytes.truncate(made.bytes.len().saturating_sub(next() % 32)),
                0xf0..=0xf3 => {
                    let at = made.bytes.len().saturating_sub(next());
                    made.bytes.insert(at, next() as u8);
                }
                0xf4..=0xfd => made.cuts.push(made.bytes.len().saturating_sub(next())),
                0xfe..=0xff => made.bytes.extend(repeat_n(b'x', next() * 64)),
            }
        }
        let length = made.bytes.len();
        made.cuts.retain(|cut| (1..length).contains(cut));
        made.cuts.sort_unstable();
        made.cuts.dedup();
        made
    }

    /// A conversation with exactly these bytes, in one piece.
    #[must_use]
    pub fn of(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), cuts: Vec::new() }
    }

    fn say(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn request(&mut self, target: &str, [method, first, second, framing]: [usize; 4]) {
        let version = if method & 0xf0 == 0xf0 { "1.0" } else { "1.1" };
        let host = if first & 0xf0 == 0xf0 { "" } else { "Host: localhost\r\n" };
        let (length, body) = FRAMINGS[framing % FRAMINGS.len()];
        let (method, first, second) =
            (METHODS[method % 8], FIELDS[first % FIELDS.len()], FIELDS[second % FIELDS.len()]);
        self.say(&format!("{method} {target} HTTP/{version}\r\n{first}{host}{length}{second}\r\n{body}"));
    }

    /// Its bytes, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain(once(self.bytes.len()));
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }

    /// Sends it on a new connection, waits for the answers that are due by these rules, and closes its side. Returns
    /// everything received until the server closed the other side.
    ///
    /// # Errors
    /// When nobody listens, or the connection doesn't end.
    pub fn hold_with(&self, address: SocketAddr, rules: &Rules) -> io::Result<Heard> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        self.hold_on(stream, rules, |stream| stream.shutdown(Shutdown::Write))
    }

    /// The same on an existing connection. `close` closes the client's side.
    ///
    /// # Errors
    /// When the connection doesn't end.
    pub fn hold_on<S: Socket>(
        &self,
        mut stream: S,
        rules: &Rules,
        close: impl Fn(&mut S) -> io::Result<()>,
    ) -> io::Result<Heard> {
        let mut heard = Heard::default();
        stream.tcp().set_write_timeout(Some(PATIENCE))?;
        for piece in self.pieces() {
            // A server that has refused a request may stop reading.
            if stream.write_all(piece).and_then(|()| stream.flush()).is_err() {
                heard.reset = true;
                break;
            }
            std::thread::yield_now();
        }
        // If the client closes its side, a server may think that the client is gone and drop its work. So the client
        // waits for the answers first.
        let steps = model::steps(&self.bytes, rules);
        let mut buffer = vec![0; 64 << 10];
        stream.tcp().set_read_timeout(Some(SILENCE))?;
        let mut open = true;
        while open && !model::is_answered(&steps, &heard.bytes) {
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => heard.bytes.extend_from_slice(&buffer[..count]),
                Err(error) if is_late(&error) => break,
                Ok(0) => open = false,
                Err(error) => {
                    heard.reset |= error.kind() == io::ErrorKind::ConnectionReset;
                    open = false;
                }
            }
        }
        if !open {
            return Ok(heard);
        }
        let _ = close(&mut stream);
        stream.tcp().set_read_timeout(Some(PATIENCE))?;
        match stream.read_to_end(&mut heard.bytes) {
            Err(error) if is_late(&error) => return Err(error),
            Err(error) => heard.reset |= error.kind() == io::ErrorKind::ConnectionReset,
            Ok(_) => {}
        }
        // An end without TLS's close_notify isn't a reset. The received bytes show whether something is missing.
        Ok(heard)
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The connection of a conversation.
pub trait Socket: Read + Write {
    /// The TCP connection below.
    fn tcp(&self) -> &TcpStream;
}

impl Socket for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_in_order() {
        let program = [0, 0, 0, 0, 0, 0xb0, 1, 4, 0, 0, 8, 0xf4, 3, 0xd0, 0xe0, b'x'];
        let made = Conversation::new(&program, &["/a", "/b"]);
        let whole: Vec<u8> = made.pieces().flatten().copied().collect();
        assert_eq!(whole, made.bytes);
        assert_eq!(made.pieces().count(), 3);
        assert_eq!(
            String::from_utf8_lossy(&made.bytes),
            "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12345\r\nx"
        );
    }

    #[test]
    fn bodies_are_as_long_as_they_say() {
        for (fields, body) in [FRAMINGS[8], FRAMINGS[9], FRAMINGS[23]] {
            assert!(fields.contains(&format!("Content-Length: {}\r\n", body.len())), "{fields:?}");
        }
        assert!(
            FRAMINGS[17].1.starts_with(&format!("{:X}\r\n", "GET /loot HTTP/1.1\r\nHost: h\r\n\r\n".len()))
        );
    }
}
