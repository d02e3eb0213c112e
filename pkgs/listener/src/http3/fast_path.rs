//! Requests that the fast path answers before h3 sees them: plain ones that have come whole, as nearly all of links' have.
//!
//! The fast path speaks HTTP/1.1. It is given the lines of a request as if they had come by that, and what it answers is made
//! frames of. All that is not plain goes to h3 as it came.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use h3::error::Code;
use quinn::{ReadError, RecvStream, SendStream};
use request_head::{Header, Lines};
use service::panics;
use tokio::sync::mpsc;

use super::context;
use super::error_code::varint;
use super::frames;
use super::qpack::{self, Section};
use crate::http_service::Exchange;
use crate::http_service::HttpService;
use crate::http1;
use crate::response::Refusal;
use crate::response::date;
use crate::response::{RequestRecord, request_record};

/// The types of frames (RFC 9114, section 7.2).
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// The two highest bits of an integer of four bytes (RFC 9000, section 16).
const FOUR_BYTES: u32 = 0b10 << 30;

/// What a stream was found to bring, one look after the other, before it was left to h3.
pub(super) type EarlyReads = [Option<Result<Option<Bytes>, ReadError>>; 2];

/// An answer of which the client has not yet taken all, and what is left of it.
pub(super) struct Unsent {
    pub(super) stream: SendStream,
    pub(super) bytes: Bytes,
}

/// What is known of a connection's streams, to those who end it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// How many streams were opened.
    opened: AtomicU64,
    /// How many had been when the last one went to h3.
    passed: AtomicU64,
    /// Whether the fast path answers no more.
    closed: AtomicBool,
}

impl Progress {
    /// How many streams there were so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    /// How many streams were answered after the last that h3 knows of: it tells clients which those are that were not.
    pub(super) fn ahead(&self) -> usize {
        (self.opened() - self.passed.load(Relaxed)) as usize
    }

    /// Leaves everything to h3 from now on.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
    }
}

/// What answers on a connection.
pub(super) struct StreamFastPath<S> {
    service: S,
    context: Arc<context::Context>,
    progress: Arc<Progress>,
    /// Answers that wait for room.
    unsent: mpsc::UnboundedSender<Unsent>,
}

/// What a thread uses for one answer after the other.
struct Buffers {
    section: Section,
    answer: Vec<u8>,
    frames: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> =
        const { RefCell::new(Buffers { section: Section::new(), answer: Vec::new(), frames: Vec::new() }) };
}

impl<S: HttpService> StreamFastPath<S> {
    /// That of a connection; what cannot be sent at once comes to the receiver.
    pub(super) fn new(
        service: S,
        context: Arc<context::Context>,
    ) -> (Self, Arc<Progress>, mpsc::UnboundedReceiver<Unsent>) {
        let (unsent, receiver) = mpsc::unbounded_channel();
        let progress = Arc::<Progress>::default();
        (Self { service, context, progress: Arc::clone(&progress), unsent }, progress, receiver)
    }

    /// Answers the request on a stream that was opened just now, or gives it back with what was read.
    pub(super) fn take(
        &mut self,
        mut send: SendStream,
        mut receive: RecvStream,
        context: &mut Context<'_>,
    ) -> Option<(SendStream, RecvStream, EarlyReads)> {
        let opened = self.progress.opened.load(Relaxed) + 1;
        self.progress.opened.store(opened, Relaxed);
        let mut found = [None, None];
        // The first goes to h3, which then knows whence to count.
        if S::FAST && opened > 1 && !self.progress.closed.load(Relaxed) {
            let mut next = || match pin!(receive.read_chunk(usize::MAX, true)).poll(context) {
                Poll::Ready(read) => Some(read.map(|chunk| chunk.map(|chunk| chunk.bytes))),
                Poll::Pending => None,
            };
            found[0] = next();
            let [first, second] = &mut found;
            if let Some(Ok(Some(bytes))) = first
                && let Some(section) = whole(bytes)
            {
                *second = next();
                // The stream ends behind it.
                let outcome = match second {
                    Some(Ok(None)) => self.answer(section, &mut send, context),
                    _ => Outcome::Declined,
                };
                match outcome {
                    Outcome::Declined => {}
                    Outcome::Sent => return None,
                    Outcome::Unsent(bytes) => {
                        // Where nobody receives it the connection is gone.
                        let _ = self.unsent.send(Unsent { stream: send, bytes });
                        return None;
                    }
                    Outcome::Lost => {
                        // A stream that is closed has nothing to reset.
                        let _ = send.reset(varint(Code::H3_INTERNAL_ERROR.value()));
                        return None;
                    }
                }
            }
        }
        self.progress.passed.store(opened, Relaxed);
        Some((send, receive, found))
    }

    /// Answers a request with this field section, or declines.
    fn answer(&mut self, section: &[u8], send: &mut SendStream, context: &mut Context<'_>) -> Outcome {
        BUFFERS.with_borrow_mut(|Buffers { section: read, answer, frames }| {
            let limits = &self.context.worker.config.limits;
            if read.read(section, limits.head_bytes).is_none() {
                return Outcome::Declined;
            }
            let Some((method, target, fields)) = plain(read, limits.fields) else { return Outcome::Declined };
            let lines = Lines { method, target, old: false, fields: &fields, length: section.len() };
            answer.clear();
            if !self.ask(&lines, answer) {
                return Outcome::Declined;
            }
            frames.clear();
            let Some(body) = write(answer, frames) else {
                debug_assert!(false, "no answer: {}", answer.escape_ascii());
                return Outcome::Lost;
            };
            let sent = match pin!(send.write(frames)).poll(context) {
                Poll::Ready(Ok(sent)) => sent,
                Poll::Pending => 0,
                // The client wants none, or is gone.
                Poll::Ready(Err(_)) => return Outcome::Lost,
            };
            if sent < frames.len() {
                return Outcome::Unsent(Bytes::copy_from_slice(&frames[sent..]));
            }
            self.context.stall.took(body as u64);
            // A stream that was stopped meanwhile has nothing to end.
            let _ = send.finish();
            Outcome::Sent
        })
    }

    /// Has the fast path answer a request, in HTTP/1.1, or decline.
    fn ask(&mut self, lines: &Lines<'_, '_>, answer: &mut Vec<u8>) -> bool {
        let Self { service, context, .. } = self;
        let (worker, peer) = (&context.worker, &context.peer);
        let second = worker.registry.clock.second();
        let since = worker.log.as_ref().map(|_| Instant::now());
        let answered = date::with_end(second, |end| {
            let exchange = Exchange { peer, closes: false, more: b"", end };
            panics::catch(|| service.fast(lines, &exchange, answer))
        });
        match answered {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(panic) => {
                panic.log("stream", &format_args!("{} {}", lines.method, lines.target));
                answer.clear();
                let (parts, body) = Refusal::Panicked.response(&mut RequestRecord::none()).into_parts();
                http1::refusal_head(answer, &parts, body.len() as u64, second);
                if lines.method != "HEAD" {
                    answer.extend_from_slice(&body);
                }
            }
        }
        if let Some(since) = since {
            request_record::logged_at_once(worker.log.as_ref(), peer, lines, answer, since);
        }
        true
    }
}

/// What becomes of a request.
enum Outcome {
    /// It is another's.
    Declined,
    /// It is answered.
    Sent,
    /// This is still to be sent.
    Unsent(Bytes),
    /// Nobody can be answered.
    Lost,
}

/// The field section of a request that is nothing but that, and has come whole.
fn whole(bytes: &[u8]) -> Option<&[u8]> {
    let (&kind, rest) = bytes.split_first()?;
    let (length, section) = frames::varint(rest)?;
    (kind == HEADERS && length == section.len() as u64).then_some(section)
}

/// The method, the path and the fields of a request that could as well have come by HTTP/1.1, with its authority as `host`.
///
/// Whatever there is to see to in a request, or wrong with it (RFC 9114, section 4.1.2), makes it another's.
fn plain(section: &Section, most: usize) -> Option<(&str, &str, Vec<Header<'_>>)> {
    let lines = section.lines();
    let mut fields = Vec::with_capacity(lines.len());
    fields.push(Header { name: "host", value: b"" });
    let (mut method, mut scheme, mut authority, mut path) = (None, None, None, None);
    for (name, value) in lines {
        if let [b':', name @ ..] = name {
            let pseudo = match name {
                b"method" => &mut method,
                b"scheme" => &mut scheme,
                b"authority" => &mut authority,
                b"path" => &mut path,
                _ => return None,
            };
            // Each once, and before all others.
            if fields.len() > 1 || pseudo.replace(value).is_some() {
                return None;
            }
        } else {
            if !is_plain(name) || !is_value(value) {
                return None;
            }
            fields.push(Header { name: std::str::from_utf8(name).ok()?, value });
        }
    }
    fields[0].value = authority.filter(|authority| !authority.is_empty() && is_value(authority))?;
    let path = path.filter(|path| path.starts_with(b"/") && path.iter().all(|byte| of_target(*byte)))?;
    let method = method.filter(|method| matches!(*method, b"GET" | b"HEAD"))?;
    if scheme != Some(b"https") || fields.len() - 1 > most {
        return None;
    }
    Some((std::str::from_utf8(method).ok()?, std::str::from_utf8(path).ok()?, fields))
}

/// Whether a name is one (RFC 9110, section 5.6.2; RFC 9114, section 4.2: in lower case), and of no field that says something
/// of the message or its connection.
fn is_plain(name: &[u8]) -> bool {
    let about_the_message = matches!(
        name,
        b"connection"
            | b"content-length"
            | b"expect"
            | b"host"
            | b"keep-alive"
            | b"proxy-connection"
            | b"te"
            | b"transfer-encoding"
            | b"upgrade"
    );
    let of_name = |byte: &u8| {
        matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'.' | b'^' | b'`' | b'|' | b'~')
    };
    !about_the_message && !name.is_empty() && name.iter().all(of_name)
}

/// Whether a value is one (RFC 9110, section 5.5), without space around it.
fn is_value(value: &[u8]) -> bool {
    let of_value = |byte: &u8| *byte >= b' ' && *byte != 0x7f || *byte == b'\t';
    value.trim_ascii().len() == value.len() && value.iter().all(of_value)
}

/// Whether a byte may be in a path with its query (RFC 3986, sections 3.3 and 3.4), or is of those that browsers send there.
fn of_target(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

/// Appends an answer of HTTP/1.1 as frames; how many bytes its body has.
fn write(answer: &[u8], frames: &mut Vec<u8>) -> Option<usize> {
    let (line, mut rest) = cut_line(answer)?;
    let status = line.strip_prefix(b"HTTP/1.1 ")?.first_chunk()?;
    frames.extend_from_slice(&[HEADERS, 0, 0, 0, 0]);
    let start = frames.len();
    qpack::begin(frames);
    qpack::status(frames, status);
    loop {
        let line;
        (line, rest) = cut_line(rest)?;
        if line.is_empty() {
            break;
        }
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = (&line[..colon], line.get(colon + 2..)?);
        // RFC 9114, section 4.2: there is none.
        if name != b"connection" {
            qpack::line(frames, name, value);
        }
    }
    let length = u32::try_from(frames.len() - start).ok()?;
    frames[start - 4..start].copy_from_slice(&(FOUR_BYTES | length).to_be_bytes());
    if !rest.is_empty() {
        let length = u32::try_from(rest.len()).ok().filter(|length| length & FOUR_BYTES == 0)?;
        frames.push(DATA);
        frames.extend_from_slice(&(FOUR_BYTES | length).to_be_bytes());
        frames.extend_from_slice(rest);
    }
    Some(rest.len())
}

/// The first line without its end, and what follows it.
fn cut_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    Some((bytes[..end].strip_suffix(b"\r")?, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field section of these lines.
    fn section(lines: &[(&str, &str)]) -> Section {
        let mut bytes = Vec::new();
        qpack::begin(&mut bytes);
        lines.iter().for_each(|(name, value)| qpack::line(&mut bytes, name.as_bytes(), value.as_bytes()));
        let mut section = Section::new();
        section.read(&bytes, 16 << 10).expect("it is one");
        section
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "h:1"), (":path", "/a?b=%20c")];

    #[test]
    fn a_plain_request_is_as_of_http_1() {
        let section = section(&[&GET[..], &[("accept", "text/html"), ("x_y", "")]].concat());
        let (method, target, fields) = plain(&section, 2).expect("it is plain");
        assert_eq!((method, target), ("GET", "/a?b=%20c"));
        let fields: Vec<_> = fields.iter().map(|field| (field.name, field.value)).collect();
        assert_eq!(fields, [("host", &b"h:1"[..]), ("accept", b"text/html"), ("x_y", b"")]);
        assert!(plain(&section, 1).is_none(), "there are too many");
    }

    #[test]
    fn what_is_odd_is_another_s() {
        let without = |at: usize| {
            let mut lines = GET.to_vec();
            lines.remove(at);
            lines
        };
        let with = |at: usize, value: &'static str| {
            let mut lines = GET.to_vec();
            lines[at].1 = value;
            lines
        };
        let and = |line: (&'static str, &'static str)| [&GET[..], &[line]].concat();
        let odd = [
            without(0),
            without(1),
            without(2),
            without(3),
            with(0, "POST"),
            with(0, "get"),
            with(0, "CONNECT"),
            with(1, "http"),
            with(2, ""),
            with(2, "a\nb"),
            with(3, ""),
            with(3, "*"),
            with(3, "a"),
            with(3, "https://h/a"),
            with(3, "/a b"),
            with(3, "/a#b"),
            with(3, "/a\r\nb"),
            with(3, "/\u{e9}"),
            and((":path", "/b")),
            and((":protocol", "websocket")),
            and((":status", "200")),
            and(("", "a")),
            and(("A", "b")),
            and(("a b", "c")),
            and(("a:", "c")),
            and(("a", "b\r\nc: d")),
            and(("a", "b\0")),
            and(("a", " b")),
            and(("a", "b\t")),
            and(("host", "h")),
            and(("te", "trailers")),
            and(("expect", "100-continue")),
            and(("content-length", "0")),
            and(("connection", "close")),
            and(("transfer-encoding", "chunked")),
            [&[("a", "b")], &GET[..]].concat(),
        ];
        for lines in odd {
            assert!(plain(&section(&lines), 100).is_none(), "{lines:?}");
        }
    }

    #[test]
    fn only_a_head_that_is_all_of_it_is_whole() {
        assert_eq!(whole(b"\x01\x02ab"), Some(&b"ab"[..]));
        assert_eq!(whole(b"\x01\x40\x02ab"), Some(&b"ab"[..]));
        for bytes in [&b""[..], b"\x01", b"\x01\x03ab", b"\x01\x01ab", b"\x00\x02ab", b"\x40\x01\x02ab"] {
            assert_eq!(whole(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn answers_become_frames() {
        let mut frames = Vec::new();
        let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\nx: a: b\r\n\r\nabc";
        assert_eq!(write(answer, &mut frames), Some(3));
        let (head, body) = frames.split_at(frames.len() - 8);
        assert_eq!(body, b"\x00\x80\x00\x00\x03abc");
        let (length, head) = frames::varint(&head[1..]).expect("a length");
        assert_eq!(length, head.len() as u64);
        let mut section = Section::new();
        section.read(head, 16 << 10).expect("a section");
        let lines: Vec<_> = section.lines().collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b":status", b"200"), (b"content-length", b"3"), (b"x", b"a: b")];
        assert_eq!(lines, expected);
        frames.clear();
        assert_eq!(write(b"HTTP/1.1 204 No Content\r\n\r\n", &mut frames), Some(0));
        for no_answer in
            ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\na: b\r\n", "HTTP/1.1 200 OK\r\na\r\n\r\n"]
        {
            assert_eq!(write(no_answer.as_bytes(), &mut Vec::new()), None, "{no_answer:?}");
        }
    }
}
