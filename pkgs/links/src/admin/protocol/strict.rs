//! What a client sends, request by request, before actix-web sees it.
//!
//! actix-web reads heads leniently, and goes on with what follows a request that closes. Here the parser of all services
//! reads first: what it refuses is replaced by a request for the refusal ([`PATH`]), and behind that, as behind a request
//! that closes, nothing is passed on.

use std::time::Duration;

use request_head::chunked::{Chunked, Found};
use request_head::{Error, Framing, Lines, Message, room};
use tokio::time::Instant;

/// The longest head, in bytes: a search of 8,000 bytes, each percent-encoded, and its fields.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// The most fields of a head.
const MAX_FIELDS: usize = 100;

/// Where refusals are asked for: their status follows.
pub(in crate::admin) const PATH: &str = "/.refused/";

/// The requests of one connection.
pub(in crate::admin) struct Requests {
    /// Received and not passed on: part of a head.
    raw: Vec<u8>,
    state: State,
    /// Whether the request under way is the last.
    last: bool,
    /// How long a head may take.
    head_time: Duration,
    /// By when the head under way has to be whole. The first of a connection is under way from the beginning, others
    /// from their first byte. And by when what is left of a body has to be here that nobody waits for any more: actix-web
    /// reads it to the end, however long that takes.
    due: Option<Instant>,
    /// Whether an answer has yet to begin. Until then no further head is passed on: actix-web would begin the answer as
    /// that one asks, such as with `Connection: close`.
    asked: bool,
}

enum State {
    Head,
    /// In a body of which so many bytes are to come.
    Body(u64),
    Chunks(Chunked),
    /// Nothing that comes is looked at.
    Over,
    /// The same, within a body: its end will not come.
    Broken,
}

impl Requests {
    /// None yet; the head of each may take as long as this.
    pub(in crate::admin) fn new(head_time: Duration) -> Self {
        let due = Some(Instant::now() + head_time);
        Self { raw: Vec::new(), state: State::Head, last: false, head_time, due, asked: false }
    }

    /// Whether nothing will be passed on any more.
    pub(in crate::admin) fn is_over(&self) -> bool {
        matches!(self.state, State::Over | State::Broken)
    }

    /// Whether that is because a body broke off.
    pub(in crate::admin) fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken)
    }

    /// By when the head under way, or what is left of a body, has to be here; none where nothing is due.
    pub(in crate::admin) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a head waits for the answer before it.
    pub(in crate::admin) fn is_waiting(&self) -> bool {
        self.asked && matches!(self.state, State::Head) && !self.raw.is_empty()
    }

    /// Notes that the answer begins, and passes on what waited for it.
    pub(in crate::admin) fn answered(&mut self, out: &mut Vec<u8>) {
        self.asked = false;
        if matches!(self.state, State::Body(_) | State::Chunks(_)) {
            self.due = Some(Instant::now() + self.head_time);
        }
        self.pass(&[], out);
    }

    /// Ends the connection because what is due is not here.
    pub(in crate::admin) fn late(&mut self, out: &mut Vec<u8>) {
        match self.state {
            State::Head => self.refuse(408, out),
            _ => self.state = State::Broken,
        }
        self.due = None;
        self.raw = Vec::new();
    }

    fn refuse(&mut self, status: u16, out: &mut Vec<u8>) {
        let request = format!("GET {PATH}{status} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        out.extend_from_slice(request.as_bytes());
        self.state = State::Over;
        self.due = None;
    }

    /// Takes what was received, and appends to `out` what is passed on.
    pub(in crate::admin) fn pass(&mut self, received: &[u8], out: &mut Vec<u8>) {
        self.raw.extend_from_slice(received);
        let mut used = 0;
        while used < self.raw.len() && !self.is_over() {
            let bytes = &self.raw[used..];
            let (taken, next) = match &mut self.state {
                State::Over | State::Broken => break,
                State::Head if self.asked => break,
                State::Head => match head(bytes) {
                    Ok(None) => break,
                    Ok(Some((length, message))) => {
                        self.last = !message.keep_alive;
                        self.due = None;
                        self.asked = true;
                        let next = match message.framing {
                            Framing::Length(length) => State::Body(length),
                            Framing::Chunked => State::Chunks(Chunked::new()),
                        };
                        (length, Some(next))
                    }
                    Err(error) => {
                        self.refuse(status(error), out);
                        break;
                    }
                },
                State::Body(left) => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    (taken, Some(State::Body(*left - taken as u64)))
                }
                State::Chunks(chunks) => match chunks.decode(bytes) {
                    Ok(Found::Data { skip, length }) => (skip + length, None),
                    Ok(Found::More { skip }) => (skip, None),
                    Ok(Found::End { skip }) => (skip, Some(State::Body(0))),
                    Err(_) => {
                        self.state = State::Broken;
                        break;
                    }
                },
            };
            out.extend_from_slice(&bytes[..taken]);
            used += taken;
            if let Some(next) = next {
                self.state = next;
            }
            if matches!(self.state, State::Body(0)) {
                self.due = None;
                self.state = if self.last { State::Over } else { State::Head };
            }
        }
        if self.is_over() {
            used = self.raw.len();
        }
        self.raw.drain(..used);
        // Little is held by those that are idle.
        self.raw.shrink_to_fit();
        if matches!(self.state, State::Head) && !self.asked && !self.raw.is_empty() {
            self.due.get_or_insert_with(|| Instant::now() + self.head_time);
        }
    }
}

fn head(bytes: &[u8]) -> Result<Option<(usize, Message)>, Error> {
    let mut room = room::<MAX_FIELDS>();
    let Some(lines) = Lines::read(bytes, &mut room, MAX_HEAD_BYTES)? else { return Ok(None) };
    let mut message = Message::new(lines.old);
    let mut sized = false;
    for field in lines.fields {
        sized |= field.name.eq_ignore_ascii_case("content-length");
        message.takes(field.name, field.value)?;
    }
    // actix-web refuses it as well, and does not say that the connection ends.
    if lines.old && lines.method == "POST" && !sized {
        return Err(Error::Malformed("a POST by HTTP/1.0 has no Content-Length"));
    }
    Ok(Some((lines.length, message.settle()?)))
}

const fn status(error: Error) -> u16 {
    match error {
        Error::Malformed(_) => 400,
        Error::TargetTooLong => 414,
        Error::Expectation => 417,
        Error::TooLarge => 431,
        Error::Coding => 501,
        Error::Version => 505,
    }
}

/// What a refusal of this status says; none where no head is refused so.
pub(in crate::admin) fn detail(status: u16) -> Option<String> {
    let errors = [Error::TargetTooLong, Error::Expectation, Error::TooLarge, Error::Coding, Error::Version];
    match status {
        408 => Some("the request's head took too long".to_owned()),
        400 => Some("the request is not HTTP/1.1 as RFC 9112 has it".to_owned()),
        _ => errors.into_iter().find(|error| self::status(*error) == status).map(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is passed on of `bytes` that come in pieces of `step`.
    fn passed(bytes: &str, step: usize) -> String {
        let (mut requests, mut out) = (Requests::new(Duration::from_secs(60)), Vec::new());
        for piece in bytes.as_bytes().chunks(step) {
            requests.pass(piece, &mut out);
            while requests.is_waiting() {
                requests.answered(&mut out);
            }
        }
        String::from_utf8(out).unwrap()
    }

    fn refused(status: u16) -> String {
        format!("GET /.refused/{status} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    }

    #[test]
    fn whole_requests_pass_as_they_are_and_nothing_behind_the_last() {
        let get = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
        let post = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
        let chunked =
            "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let closing = "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let closing_post = "POST /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
        let old = "GET /a HTTP/1.0\r\n\r\n";
        let bad = "GET /a HTTP/1.1\nHost: h\n\n";
        for (sent, expected) in [
            (format!("{get}{post}{chunked}{get}"), format!("{get}{post}{chunked}{get}")),
            (format!("{get}{closing}{get}"), format!("{get}{closing}")),
            (format!("{closing_post}{get}"), closing_post.to_owned()),
            (format!("{old}{get}"), old.to_owned()),
            ("POST /a HTTP/1.0\r\n\r\n".to_owned(), refused(400)),
            (format!("{get}{bad}{get}"), format!("{get}{}", refused(400))),
            ("GET /a HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n".to_owned(), refused(417)),
            ("GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(), refused(501)),
            ("GET /a HTTP/2.0\r\nHost: h\r\n\r\n".to_owned(), refused(505)),
            (format!("GET /{} HTTP/1.1\r\n", "x".repeat(MAX_HEAD_BYTES)), refused(414)),
            (format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(MAX_HEAD_BYTES)), refused(431)),
            ("GET /a HTTP/1.1\r\nHost".to_owned(), String::new()),
        ] {
            // Byte by byte only what is short: a head is read anew with each piece.
            for step in [1, 7, 64, 8192].into_iter().filter(|step| sent.len() / step < 1000) {
                assert_eq!(passed(&sent, step), expected, "{sent:.60?} by {step}");
            }
        }
    }

    #[test]
    fn a_head_waits_until_the_answer_before_it_begins() {
        let (mut requests, mut out) = (Requests::new(Duration::from_secs(60)), Vec::new());
        let first = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
        let second = b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n";
        requests.pass(&[&first[..], second].concat(), &mut out);
        assert!(requests.is_waiting());
        assert_eq!(out, first);
        out.clear();
        requests.answered(&mut out);
        assert!(!requests.is_waiting());
        assert_eq!(out, second);
    }

    #[test]
    fn a_body_that_breaks_off_is_not_passed_on() {
        let bad =
            "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\nGET";
        assert!(passed(bad, 4096).ends_with("3\r\nabc"), "{}", passed(bad, 4096));
        let mut requests = Requests::new(Duration::from_secs(60));
        requests.pass(bad.as_bytes(), &mut Vec::new());
        assert!(requests.is_over() && requests.is_broken());
    }

    #[test]
    fn a_head_is_due_from_its_first_byte_and_only_then() {
        let (mut requests, mut out) = (Requests::new(Duration::from_secs(60)), Vec::new());
        let first = requests.due();
        assert!(first.is_some(), "the first is awaited");
        requests.pass(b"GET /a HTTP/1.1\r\nHost: h\r\n", &mut out);
        assert_eq!(requests.due(), first, "more of it puts nothing off");
        requests.pass(b"\r\n", &mut out);
        assert_eq!(requests.due(), None, "none is under way");
        requests.pass(b"G", &mut out);
        assert_eq!(requests.due(), None, "it waits for the answer, not for the client");
        requests.answered(&mut out);
        let second = requests.due();
        assert!(second > first);
        requests.pass(b"E", &mut out);
        assert_eq!(requests.due(), second);
        out.clear();
        requests.late(&mut out);
        requests.pass(b"T /a HTTP/1.1\r\nHost: h\r\n\r\n", &mut out);
        assert_eq!((String::from_utf8_lossy(&out).into_owned(), requests.due()), (refused(408), None));
        requests = Requests::new(Duration::from_secs(60));
        requests.pass(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf", &mut out);
        assert_eq!(requests.due(), None, "a body has a deadline of its own");
        requests.answered(&mut out);
        assert!(requests.due().is_some(), "what is left of it has none");
        requests.late(&mut out);
        assert!(requests.is_broken());
    }

    #[test]
    fn every_refusal_says_why() {
        for status in [400, 408, 414, 417, 431, 501, 505] {
            assert!(detail(status).is_some(), "{status}");
        }
        assert_eq!(detail(200), None);
    }
}
