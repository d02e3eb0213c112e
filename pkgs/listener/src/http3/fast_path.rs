//! Plain requests that the fast path answers before h3 sees them, if they arrived whole. Nearly all of links' requests
//! do.
//!
//! The fast path speaks HTTP/1.1: it receives a request's lines as if they had come over HTTP/1.1, and its answer is
//! turned into frames. Everything that is not plain goes to h3 unchanged.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::error::Code;
use quinn_proto::ConnectionError;
use tokio::sync::mpsc;

use super::context;
use super::error_code::varint;
use super::frames;
use super::qpack;
use crate::http_service::HttpService;
use crate::plain::{Asking, PlainAnswer, PlainRequest, with_buffers};
use crate::quic_driver::{self, Opened, PollRead, ReadError, RecvStream, SendStream};

/// The types of frames (RFC 9114, section 7.2).
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// The two highest bits of an integer of four bytes (RFC 9000, section 16).
const FOUR_BYTES: u32 = 0b10 << 30;

/// The results of reading a stream, in order, before it was left to h3.
pub(super) type EarlyReads = [Option<Result<Option<Bytes>, ReadError>>; 2];

/// The rest of an answer that the client has not yet taken.
pub(super) struct Unsent {
    pub(super) stream: SendStream,
    pub(super) pieces: [Bytes; 2],
}

/// The state of a connection's streams, for the code that ends it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The number of streams opened.
    opened: AtomicU64,
    /// That number when the last stream went to h3.
    passed: AtomicU64,
    /// Whether the fast path answers no more.
    closed: AtomicBool,
    /// Whether nobody answers any more.
    rejecting: AtomicBool,
}

impl Progress {
    /// The number of streams so far, without rejected ones.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    /// How many streams were answered after the last one that h3 knows of. h3 tells clients which streams were not
    /// processed.
    pub(super) fn ahead(&self) -> usize {
        (self.opened() - self.passed.load(Relaxed)) as usize
    }

    /// Leaves this stream to h3.
    fn pass(&self, stream: u64) {
        self.opened.store(stream, Relaxed);
        self.passed.store(stream, Relaxed);
    }

    /// Leaves everything to h3 from now on.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Once it is closed: rejects everything from now on.
    pub(super) fn reject(&self) {
        self.rejecting.store(true, Relaxed);
    }
}

/// The fast path of a connection.
pub(super) struct StreamFastPath<S> {
    service: S,
    context: Arc<context::Context>,
    progress: Arc<Progress>,
    /// Answers that wait for room.
    unsent: mpsc::UnboundedSender<Unsent>,
}

/// A thread's buffer for answers, one after the other.
type Frames = RefCell<Vec<u8>>;

thread_local! {
    static FRAMES: Frames = const { Frames::new(Vec::new()) };
}

impl<S: HttpService> StreamFastPath<S> {
    /// The fast path of a connection. Answers that cannot be sent at once go to the receiver.
    pub(super) fn new(
        service: S,
        context: Arc<context::Context>,
    ) -> (Self, Arc<Progress>, mpsc::UnboundedReceiver<Unsent>) {
        let (unsent, receiver) = mpsc::unbounded_channel();
        let progress = Arc::<Progress>::default();
        (Self { service, context, progress: Arc::clone(&progress), unsent }, progress, receiver)
    }

    /// Answers requests on newly opened streams, up to the next stream that is for h3. Returns that with what was read.
    pub(super) fn poll_for_h3(
        &mut self,
        quic: &quic_driver::Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream, EarlyReads), ConnectionError>> {
        loop {
            let count = self.progress.opened.load(Relaxed) + 1;
            // The first stream goes to h3, so that h3 knows where to start counting.
            if !S::FAST || count == 1 || self.progress.closed.load(Relaxed) {
                let (mut send, mut receive) = ready!(quic.poll_accept_bi(cx))?;
                if self.progress.rejecting.load(Relaxed) {
                    // The client may send it again elsewhere.
                    let rejected = varint(Code::H3_REQUEST_REJECTED.value());
                    send.reset(rejected);
                    receive.stop(rejected);
                    continue;
                }
                self.progress.pass(count);
                return Poll::Ready(Ok((send, receive, [None, None])));
            }
            let mut pieces = [Bytes::new(), Bytes::new()];
            let (stream, read) = ready!(quic.poll_accept_read(cx, &mut pieces))?;
            self.progress.opened.store(count, Relaxed);
            let found = early_reads(read, pieces, stream.has_ended());
            let outcome = match &found {
                // All of the request, and the stream's end.
                [Some(Ok(Some(bytes))), Some(Ok(None))] => match whole(bytes) {
                    Some(section) => self.answer(section, quic, &stream, cx),
                    None => Outcome::Declined,
                },
                _ => Outcome::Declined,
            };
            match outcome {
                Outcome::Declined => {
                    self.progress.pass(count);
                    let (send, receive) = stream.streams(quic);
                    return Poll::Ready(Ok((send, receive, found)));
                }
                Outcome::Sent => {}
                Outcome::Unsent(pieces) => {
                    let (stream, _) = stream.streams(quic);
                    // Without a receiver, the connection is gone.
                    let _ = self.unsent.send(Unsent { stream, pieces });
                }
                Outcome::Lost => stream.streams(quic).0.reset(varint(Code::H3_INTERNAL_ERROR.value())),
            }
        }
    }

    /// Answers the request in this field section, or declines.
    fn answer(
        &mut self,
        section: &[u8],
        quic: &quic_driver::Connection,
        stream: &Opened,
        cx: &mut Context<'_>,
    ) -> Outcome {
        let Self { service, context: shared, .. } = self;
        let limits = &shared.worker.config.limits;
        let asking = Asking { worker: &shared.worker, peer: &shared.peer, more: b"" };
        with_buffers(|read, answer| {
            let asked = qpack::read(read, section, limits.head_bytes)
                .and_then(|()| PlainRequest::of(read, limits.fields, &[b"https"]));
            let Some(request) = asked else { return Outcome::Declined };
            let Some(body) = asking.ask(service, &request.lines(section.len()), answer) else {
                return Outcome::Declined;
            };
            FRAMES.with_borrow_mut(|frames| {
                frames.clear();
                let Some(length) = write(answer, body.len(), frames) else {
                    debug_assert!(false, "no answer: {}", answer.escape_ascii());
                    return Outcome::Lost;
                };
                let mut pieces = [Bytes::copy_from_slice(frames), body];
                match stream.poll_write_last(quic, cx, &mut pieces) {
                    Poll::Ready(Ok(())) => {
                        shared.stall.took(length as u64);
                        Outcome::Sent
                    }
                    // The client has reset the stream, or is gone.
                    Poll::Ready(Err(_)) => Outcome::Lost,
                    Poll::Pending => Outcome::Unsent(pieces),
                }
            })
        })
    }
}

/// The result for a request.
enum Outcome {
    /// It is left to h3.
    Declined,
    /// It is answered.
    Sent,
    /// This much is still to be sent.
    Unsent([Bytes; 2]),
    /// There is nobody to answer.
    Lost,
}

/// Two reads, from the result of reading up to two pieces.
fn early_reads(read: PollRead, [first, second]: [Bytes; 2], ended: bool) -> EarlyReads {
    match read {
        Poll::Pending => [None, None],
        Poll::Ready(Ok(0)) => [Some(Ok(None)), None],
        Poll::Ready(Ok(1)) => [Some(Ok(Some(first))), ended.then_some(Ok(None))],
        Poll::Ready(Ok(_)) => [Some(Ok(Some(first))), Some(Ok(Some(second)))],
        Poll::Ready(Err(error)) => [Some(Err(error)), None],
    }
}

/// The field section of a request that consists of nothing else and has arrived whole.
fn whole(bytes: &[u8]) -> Option<&[u8]> {
    let (&kind, rest) = bytes.split_first()?;
    let (length, section) = frames::varint(rest)?;
    (kind == HEADERS && length == section.len() as u64).then_some(section)
}

/// Appends an HTTP/1.1 answer as frames. The last frame lacks the `more` bytes that follow. Returns the length of its
/// body.
fn write(answer: &[u8], more: usize, frames: &mut Vec<u8>) -> Option<usize> {
    let answer = PlainAnswer::read(answer)?;
    frames.extend_from_slice(&[HEADERS, 0, 0, 0, 0]);
    let start = frames.len();
    qpack::begin(frames);
    qpack::status(frames, answer.status);
    let body = answer.fields(|name, value| qpack::line(frames, name, value))?;
    let length = u32::try_from(frames.len() - start).ok()?;
    frames[start - 4..start].copy_from_slice(&(FOUR_BYTES | length).to_be_bytes());
    let whole = body.len() + more;
    if whole > 0 {
        let length = u32::try_from(whole).ok().filter(|length| length & FOUR_BYTES == 0)?;
        frames.push(DATA);
        frames.extend_from_slice(&(FOUR_BYTES | length).to_be_bytes());
        frames.extend_from_slice(body);
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use crate::field_compression::Section;

    use super::*;

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
        assert_eq!(write(answer, 0, &mut frames), Some(3));
        let mut apart = Vec::new();
        assert_eq!(write(&answer[..answer.len() - 3], 3, &mut apart), Some(3));
        assert_eq!(apart, frames[..frames.len() - 3], "its body follows");
        let (head, body) = frames.split_at(frames.len() - 8);
        assert_eq!(body, b"\x00\x80\x00\x00\x03abc");
        let (length, head) = frames::varint(&head[1..]).expect("a length");
        assert_eq!(length, head.len() as u64);
        let mut section = Section::new();
        qpack::read(&mut section, head, 16 << 10).expect("a section");
        let lines: Vec<_> = section.lines().collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b":status", b"200"), (b"content-length", b"3"), (b"x", b"a: b")];
        assert_eq!(lines, expected);
        frames.clear();
        assert_eq!(write(b"HTTP/1.1 204 No Content\r\n\r\n", 0, &mut frames), Some(0));
        for no_answer in
            ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\na: b\r\n", "HTTP/1.1 200 OK\r\na\r\n\r\n"]
        {
            assert_eq!(write(no_answer.as_bytes(), 0, &mut Vec::new()), None, "{no_answer:?}");
        }
    }
}
