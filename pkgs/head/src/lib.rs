//! The head of an HTTP/1.1 request, read as strictly as RFC 9112 allows: what two servers could read differently is
//! refused, since that is how requests are smuggled.
//!
//! ```
//! use request_head::{Framing, Lines, Message, room};
//!
//! let bytes = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nAccept: */*\r\n\r\nabc";
//! let mut room = room::<64>();
//! let lines = Lines::read(bytes, &mut room, 8192)?.expect("a whole head");
//! let mut message = Message::new(lines.old);
//! let mut accept = None;
//! for field in lines.fields {
//!     if !message.takes(field.name, field.value)? && field.name.eq_ignore_ascii_case("accept") {
//!         accept = Some(field.value);
//!     }
//! }
//! let message = message.settle()?;
//! assert_eq!((lines.method, lines.target, accept), ("POST", "/a", Some(&b"*/*"[..])));
//! assert_eq!((message.framing, message.keep_alive), (Framing::Length(3), true));
//! assert_eq!(&bytes[lines.length..], b"abc");
//! # Ok::<(), request_head::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod chunked;

use std::mem::MaybeUninit;

pub use httparse::Header;
use httparse::Status;

/// Why a head is refused. Where the next request begins cannot be trusted after any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// 400: not HTTP/1.1 as RFC 9112 has it.
    #[error("{0}")]
    Malformed(&'static str),
    /// 414: the request line is longer than allowed.
    #[error("the request target is longer than allowed")]
    TargetTooLong,
    /// 417: something else than 100-continue.
    #[error("100-continue is all that can be expected")]
    Expectation,
    /// 431: more fields than allowed, or longer ones.
    #[error("the header fields are more than allowed")]
    TooLarge,
    /// 501: a transfer coding nobody here knows.
    #[error("chunked is the only transfer coding")]
    Coding,
    /// 505: another version than 1.1 and 1.0.
    #[error("HTTP/1.1 and 1.0 are spoken here")]
    Version,
}

/// What [`room`] gives.
pub type Room<'b, const FIELDS: usize> = [MaybeUninit<Header<'b>>; FIELDS];

/// Room for a head of at most `FIELDS` fields, on the stack.
#[inline]
pub fn room<'b, const FIELDS: usize>() -> Room<'b, FIELDS> {
    [const { MaybeUninit::uninit() }; FIELDS]
}

/// The lines of a head.
#[derive(Debug)]
pub struct Lines<'r, 'b> {
    /// The method, of any name.
    pub method: &'b str,
    /// The request target, in whatever form; without a fragment.
    pub target: &'b str,
    /// Whether it came by HTTP/1.0.
    pub old: bool,
    /// The fields, in order. Values are without space around them, and have no CR, LF or NUL.
    pub fields: &'r [Header<'b>],
    /// How many bytes the head takes.
    pub length: usize,
}

impl<'r, 'b> Lines<'r, 'b> {
    /// Reads the head that `bytes` start with, of at most `most` bytes and as many fields as there is room for;
    /// none where more is to come.
    ///
    /// # Errors
    /// [`Error`].
    #[inline]
    pub fn read(
        bytes: &'b [u8],
        room: &'r mut [MaybeUninit<Header<'b>>],
        most: usize,
    ) -> Result<Option<Self>, Error> {
        let mut parsed = httparse::Request::new(&mut []);
        let length = match parsed.parse_with_uninit_headers(bytes, room) {
            Ok(Status::Complete(length)) if length <= most => length,
            Ok(Status::Partial) if bytes.len() < most && !has_bare_lf(bytes) => return Ok(None),
            Ok(Status::Partial) if bytes.len() < most => return Err(BARE_LF),
            failed => return Err(refused(failed, bytes, most)),
        };
        // Section 2.2: a bare LF may be taken for a line's end; here it is not.
        if !lines_end_in_crlf(&bytes[..length], parsed.headers) {
            return Err(BARE_LF);
        }
        let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Error::Malformed("the request line is malformed"));
        };
        // RFC 9110, section 7.1: a client keeps the fragment to itself.
        if memchr::memchr(b'#', target.as_bytes()).is_some() {
            return Err(Error::Malformed("the request target has a fragment"));
        }
        Ok(Some(Self { method, target, old: minor == 0, fields: parsed.headers, length }))
    }
}

const BARE_LF: Error = Error::Malformed("a line ends without CR");

/// Whether all lines of a whole head end in CRLF, of which these are all of the fields. Each begins behind the end of another
/// line, and there alone httparse takes an LF: so it is looked there, and not at every byte.
#[inline]
fn lines_end_in_crlf(raw: &[u8], fields: &[Header<'_>]) -> bool {
    let before = |field: &Header<'_>| field.name.as_ptr().addr() - raw.as_ptr().addr();
    // Empty lines may come first.
    let all = matches!(raw, [b'A'..=b'Z' | b'a'..=b'z', ..])
        && raw.ends_with(b"\r\n\r\n")
        && fields.iter().all(|field| raw[..before(field)].ends_with(b"\r\n"));
    debug_assert!(!all || !has_bare_lf(raw), "{}", raw.escape_ascii());
    all || !has_bare_lf(raw)
}

/// Whether some LF has no CR before it. Looks at every byte, several at a time, which takes less than half as long
/// as going from one LF to the next.
#[inline]
fn has_bare_lf(raw: &[u8]) -> bool {
    let pairs = raw.iter().zip(raw.iter().skip(1));
    let bare = pairs.fold(0, |bare, (cr, lf)| bare | (u8::from(*lf == b'\n') & u8::from(*cr != b'\r')));
    bare != 0 || raw.first() == Some(&b'\n')
}

/// What is wrong with bytes that httparse does not take, or not as a head that is short enough.
#[cold]
fn refused(failed: httparse::Result<usize>, bytes: &[u8], most: usize) -> Error {
    use httparse::Error as Kind;
    match failed {
        Ok(_) if !bytes[..bytes.len().min(most)].contains(&b'\n') => Error::TargetTooLong,
        Ok(_) | Err(Kind::TooManyHeaders) => Error::TooLarge,
        Err(Kind::Version) if names_a_version(bytes) => Error::Version,
        Err(Kind::HeaderName) => Error::Malformed("a field's name is malformed"),
        Err(Kind::HeaderValue) => Error::Malformed("a field's value is malformed"),
        Err(Kind::NewLine) => Error::Malformed("a CR is followed by something else than LF"),
        Err(Kind::Token) => Error::Malformed("the method is malformed"),
        Err(Kind::Status | Kind::Version) => Error::Malformed("the request line is malformed"),
    }
}

/// Whether the request line has a version where it should, even if not one that is spoken here.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\r' || *byte == b'\n').next();
    line.and_then(|line| line.splitn(3, |byte| *byte == b' ').nth(2)).is_some_and(|v| v.starts_with(b"HTTP/"))
}

/// How long a request's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes, often none.
    Length(u64),
    /// As the chunked coding tells.
    Chunked,
}

/// What the fields say about the message itself.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// How long the body is.
    pub framing: Framing,
    /// Whether the client leaves the connection open.
    pub keep_alive: bool,
    /// Whether the client waits for 100 before it sends the body.
    pub expects_continue: bool,
    old: bool,
    closes: bool,
    hosts: u8,
    length: Option<u64>,
    chunked: bool,
}

impl Message {
    /// Of a head of which no field is known yet; `old` is whether it came by HTTP/1.0.
    #[inline]
    pub fn new(old: bool) -> Self {
        Self {
            framing: Framing::Length(0),
            keep_alive: !old,
            expects_continue: false,
            old,
            closes: false,
            hosts: 0,
            length: None,
            chunked: false,
        }
    }

    /// Notes a field, and returns whether it was about the message.
    ///
    /// # Errors
    /// [`Error`], where the field can be read in two ways, or asks for what is not known here.
    #[inline]
    pub fn takes(&mut self, name: &str, value: &[u8]) -> Result<bool, Error> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // By length first: most fields of most requests are none of these.
        match name.len() {
            4 if is("host") => self.host(value)?,
            6 if is("expect") => self.expect(value)?,
            10 if is("connection") => self.connection(value),
            14 if is("content-length") => self.content_length(value)?,
            17 if is("transfer-encoding") => self.transfer_encoding(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Judges all of them together.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    #[inline]
    pub fn settle(mut self) -> Result<Self, Error> {
        // Section 3.2: exactly one Host. HTTP/1.0 may go without.
        match self.hosts {
            1 => {}
            0 if self.old => {}
            0 => return Err(Error::Malformed("Host is missing")),
            _ => return Err(Error::Malformed("there are two of Host")),
        }
        if self.chunked {
            // Section 6.1: either may be an attempt at smuggling.
            if self.old {
                return Err(Error::Malformed("HTTP/1.0 has no Transfer-Encoding"));
            }
            if self.length.is_some() {
                return Err(Error::Malformed("there are both Content-Length and Transfer-Encoding"));
            }
            self.framing = Framing::Chunked;
        } else if let Some(length) = self.length {
            self.framing = Framing::Length(length);
        }
        self.keep_alive &= !self.closes;
        // RFC 9110, section 10.1.1: of HTTP/1.0 it is ignored, and where there is nothing to wait with.
        self.expects_continue &= !self.old && self.framing != Framing::Length(0);
        Ok(self)
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Error> {
        self.hosts = self.hosts.saturating_add(1);
        if value.iter().fold(true, |all, byte| all & OF_AUTHORITY[usize::from(*byte)]) {
            Ok(())
        } else {
            Err(Error::Malformed("Host names no host"))
        }
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Error> {
        self.expects_continue = true;
        if value.eq_ignore_ascii_case(b"100-continue") { Ok(()) } else { Err(Error::Expectation) }
    }

    fn connection(&mut self, value: &[u8]) {
        // What nearly all say.
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
            return;
        }
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            // Whatever else it says (section 9.6).
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Error> {
        let digits = Some(value).filter(|value| value.iter().all(u8::is_ascii_digit));
        let length = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let length = length.ok_or(Error::Malformed("Content-Length is no number"))?;
        // Section 6.3: two may be equal, and yet there is no reason to send two.
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err(Error::Malformed("there are two of Content-Length")),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Error> {
        if self.chunked {
            return Err(Error::Malformed("there are two of Transfer-Encoding"));
        }
        self.chunked = true;
        if value.eq_ignore_ascii_case(b"chunked") { Ok(()) } else { Err(Error::Coding) }
    }
}

/// Whether a byte may be in `host [ ":" port ]` (RFC 3986, section 3.2.2), userinfo not being part of it.
const OF_AUTHORITY: [bool; 256] = {
    let mut table = [false; 256];
    let others = b"-._~!$&'()*+,;=:[]%";
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &str) -> Result<Option<(Message, usize)>, Error> {
        let mut room = room::<100>();
        let Some(lines) = Lines::read(bytes.as_bytes(), &mut room, 16 * 1024)? else { return Ok(None) };
        let mut message = Message::new(lines.old);
        for field in lines.fields {
            message.takes(field.name, field.value)?;
        }
        Ok(Some((message.settle()?, lines.length)))
    }

    fn whole(bytes: &str) -> Message {
        let (message, length) = message(bytes).expect("a request").expect("a whole head");
        assert_eq!(length, bytes.len(), "{bytes:?}");
        message
    }

    #[test]
    fn part_of_a_head_is_no_head() {
        let bytes = "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n";
        for end in 0..bytes.len() {
            assert!(matches!(message(&bytes[..end]), Ok(None)), "{end}");
        }
        assert!(matches!(message(bytes), Ok(Some(_))));
    }

    #[test]
    fn connections_are_kept_as_the_client_asks() {
        for (version, connection, keep) in [
            ("1.1", "", true),
            ("1.1", "Connection: keep-alive\r\n", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: TE, Close\r\n", false),
            ("1.1", "Connection: close, keep-alive\r\n", false),
            ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
            ("1.0", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ] {
            let bytes = format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n");
            assert_eq!(whole(&bytes).keep_alive, keep, "{version} {connection}");
        }
    }

    #[test]
    fn a_body_ends_where_the_head_says() {
        for (fields, framing, expects) in [
            ("", Framing::Length(0), false),
            ("Content-Length: 0\r\n", Framing::Length(0), false),
            ("Content-Length: 3\r\n", Framing::Length(3), false),
            ("transfer-encoding: Chunked\r\n", Framing::Chunked, false),
            ("Expect: 100-continue\r\nContent-Length: 3\r\n", Framing::Length(3), true),
            ("Expect: 100-continue\r\n", Framing::Length(0), false),
        ] {
            let message = whole(&format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
            assert_eq!((message.framing, message.expects_continue), (framing, expects), "{fields:?}");
        }
        let old = whole("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
        assert!(!old.expects_continue);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let with = |fields: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length : 1\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Host: i\r\n",
            "A: b\r\n c\r\n",
            "A: b\r\n\tc\r\n",
            "A: b\n",
            "A: b\rc\r\n",
            "A\0: b\r\n",
            "A: \0\r\n",
            " A: b\r\n",
            ": b\r\n",
            "A b\r\n",
        ] {
            assert!(matches!(message(&with(fields)), Err(Error::Malformed(_))), "{fields:?}");
        }
        for whole in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\nHost: h\n\n",
            "GET / HTTP/1.1\r\nHost: h\r\n\n",
            "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /\r\n\r\n",
            "G\u{e9}T / HTTP/1.1\r\nHost: h\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01",
        ] {
            assert!(matches!(message(whole), Err(Error::Malformed(_))), "{whole:?}");
        }
    }

    #[test]
    fn a_bare_lf_is_refused_before_the_head_is_whole() {
        for begun in ["\n", "\r\n\n", "\n\r\n\r\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: h\n"] {
            assert!(matches!(message(begun), Err(Error::Malformed(_))), "{begun:?}");
        }
    }

    #[test]
    fn a_bare_lf_is_refused_wherever_a_line_ends() {
        for whole in [
            "GET / HTTP/1.1\r\nHost: h\r\nA:  \r\nB: c \r\n\r\n",
            "\r\n\r\nGET / HTTP/1.0\r\nA: b\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
        ] {
            assert!(matches!(message(whole), Ok(Some(_))), "{whole:?}");
            for (at, _) in whole.match_indices("\r\n") {
                let bare = [&whole[..at], &whole[at + 1..]].concat();
                assert!(matches!(message(&bare), Err(Error::Malformed(_))), "{bare:?}");
            }
        }
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let read = |bytes: &str| {
            let mut room = room::<2>();
            Lines::read(bytes.as_bytes(), &mut room, 100).map(|lines| lines.is_some())
        };
        let long = "x".repeat(100);
        for (bytes, error) in [
            (format!("GET /{long}"), Error::TargetTooLong),
            (format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"), Error::TargetTooLong),
            (format!("GET / HTTP/1.1\r\nHost: h\r\nA: {long}"), Error::TooLarge),
            (format!("GET / HTTP/1.1\r\nHost: h\r\nA: {long}\r\n\r\n"), Error::TooLarge),
            ("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\nC: d\r\n\r\n".into(), Error::TooLarge),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), Error::Version),
        ] {
            assert_eq!(read(&bytes), Err(error), "{bytes:?}");
        }
        for (fields, error) in [
            ("Expect: more\r\n", Error::Expectation),
            ("Transfer-Encoding: gzip\r\n", Error::Coding),
            ("Transfer-Encoding: chunked, identity\r\n", Error::Coding),
            ("Transfer-Encoding: xchunked\r\n", Error::Coding),
        ] {
            let bytes = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            assert_eq!(message(&bytes).err(), Some(error), "{fields:?}");
        }
    }
}
