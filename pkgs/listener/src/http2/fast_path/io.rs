//! The byte stream below h2, on which plain requests are answered.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use h2::Reason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::cork::CorkedIo;
use super::super::frame::{CONTINUATION, HEAD, HEADERS, Head, MOST, WINDOW_UPDATE};
use super::super::request::ConnectionContext;
use super::answer;
use super::client_frames::{ClientFrames, Step};
use super::field_sections::FieldSection;
use super::hpack::Decoder;
use super::server_frames::ServerFrames;
use super::shared::Shared;
use super::windows::Windows;
use crate::http_service::HttpService;
use crate::http1::buffer_pool::{Input, Output};
use crate::limits::ResponseReservation;
use crate::plain::{Asking, PlainRequest, with_buffers};

/// Nothing more is answered while this many bytes wait to be sent.
const MOST_UNSENT: usize = 32 * 1024;

/// The smallest input buffer, whatever a head may have.
const LEAST_INPUT: usize = 4096;

/// A field section in several frames may be this many times as long as the limit of a head, or as a frame. A longer one
/// ends the connection with ENHANCE_YOUR_CALM.
const SECTION: usize = 2;

/// The accepted values of `:scheme` (RFC 9113, section 8.3.1).
const SCHEMES: &[&[u8]] = &[b"https", b"http"];

/// A connection as h2 sees it. Without a fast path, it is just the stream.
pub struct FastPathIo<I, S> {
    io: CorkedIo<I>,
    fast: Option<Box<FastPath<S>>>,
}

/// The state of the fast path.
struct FastPath<S> {
    service: S,
    context: Arc<ConnectionContext>,
    shared: Arc<Shared>,
    input: Input,
    /// How many of the next bytes are h2's.
    pass: usize,
    /// Complete frames that h2 receives instead of what the client sent.
    told: BytesMut,
    /// Whether the client has ended its side.
    ended: bool,
    /// Whether the connection ends, so that nothing more is read.
    over: bool,
    client: ClientFrames,
    decoder: Decoder,
    server: ServerFrames,
    windows: Windows,
    output: Output,
    /// The reservation for bytes that the client is slow to take.
    held: Option<ResponseReservation>,
    /// Whether received bytes wait until the client has taken output.
    paused: bool,
    /// When the request being answered was read, if it is timed.
    timed: Option<Instant>,
}

/// What to do when h2 wants to read.
enum Turn {
    /// Look at the next frame.
    Go,
    /// h2 has to process its input first.
    Wait,
    /// Answers have to be sent first.
    Full,
    /// Receive more.
    Receive,
    /// The connection ends.
    Over,
}

impl<I, S: HttpService> FastPathIo<I, S> {
    pub fn new(io: CorkedIo<I>, service: &S, context: &Arc<ConnectionContext>, shared: &Arc<Shared>) -> Self {
        let fast = S::FAST.then(|| Box::new(FastPath::new(service.clone(), context, shared)));
        Self { io, fast }
    }
}

impl<S: HttpService> FastPath<S> {
    fn new(service: S, context: &Arc<ConnectionContext>, shared: &Arc<Shared>) -> Self {
        Self {
            service,
            context: Arc::clone(context),
            shared: Arc::clone(shared),
            input: Input::default(),
            pass: 0,
            told: BytesMut::new(),
            ended: false,
            over: false,
            client: ClientFrames::default(),
            decoder: Decoder::default(),
            server: ServerFrames::default(),
            windows: Windows::default(),
            output: Output::default(),
            held: None,
            paused: false,
            timed: None,
        }
    }

    fn input_size(&self) -> usize {
        self.context.limits.head_bytes.max(LEAST_INPUT)
    }

    /// Receives, answers plain requests, and gives h2 the rest.
    fn poll_read(
        &mut self,
        io: &mut CorkedIo<impl AsyncRead + AsyncWrite + Unpin>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        loop {
            if self.pass > 0 && !self.input.is_empty() {
                let bytes = self.input.bytes();
                let count = self.pass.min(bytes.len()).min(out.remaining());
                out.put_slice(&bytes[..count]);
                self.input.consume(count);
                self.pass -= count;
                if out.remaining() == 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            if self.pass == 0 && self.tell(out) {
                return Poll::Ready(Ok(()));
            }
            let given = out.filled().len() > before;
            let turn = if self.pass > 0 { Turn::Receive } else { self.turn(given) };
            match turn {
                Turn::Go => continue,
                Turn::Wait => return Poll::Ready(Ok(())),
                Turn::Over => return Poll::Pending,
                // h2 finishes its frame when it is written to, which happens when nothing more is read.
                Turn::Full if !self.server.is_between() => {
                    self.paused = true;
                    return Poll::Pending;
                }
                Turn::Full => {
                    if self.poll_send(io, context)?.is_pending() {
                        self.paused = true;
                        return Poll::Pending;
                    }
                    continue;
                }
                Turn::Receive if given => return Poll::Ready(Ok(())),
                Turn::Receive => {}
            }
            if self.ended {
                // h2 may end without sending anything.
                if !self.output.is_empty() && self.server.is_between() {
                    ready!(self.poll_send(io, context))?;
                    ready!(Pin::new(&mut *io).poll_flush(context))?;
                }
                if self.input.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                // An incomplete frame belongs to h2.
                self.pass = self.input.bytes().len();
                continue;
            }
            if self.pass > 0 && self.pass >= out.remaining() {
                // Long payloads are not copied.
                let received = Pin::new(&mut *io).poll_read(context, out);
                let count = out.filled().len() - before;
                self.pass -= count;
                self.ended = count == 0 && received.is_ready();
                return received;
            }
            let size = self.input_size();
            if self.input.is_full() {
                // No frame that is waited for is longer.
                self.input.grow(HEAD + MOST);
            }
            if ready!(self.input.poll_read(io, context, size))? == 0 {
                self.ended = true;
            } else {
                self.timed = self.context.worker.counts().read();
            }
        }
    }

    /// Gives h2 the frames that replace the client's, or, if that is all there is, returns window that was kept from
    /// it. Returns whether there was anything.
    fn tell(&mut self, out: &mut ReadBuf<'_>) -> bool {
        if let Some(credit) = self.windows.give_back() {
            let head = Head { length: 4, kind: WINDOW_UPDATE, flags: 0, stream: 0 };
            self.told.extend_from_slice(&head.bytes());
            self.told.extend_from_slice(&credit.to_be_bytes());
        }
        if self.told.is_empty() {
            return false;
        }
        let count = self.told.len().min(out.remaining());
        out.put_slice(&self.told[..count]);
        self.told.advance(count);
        if self.told.is_empty() {
            self.told = BytesMut::new();
        }
        true
    }

    /// Handles the next frame. `given` says whether h2 has input that it has not processed yet.
    fn turn(&mut self, given: bool) -> Turn {
        if self.over {
            return Turn::Over;
        }
        if self.output.len() >= MOST_UNSENT {
            return if given { Turn::Wait } else { Turn::Full };
        }
        // Frames are handled one after the other, as by h2: if it finds an error in one, nothing after it is looked at.
        let of_section = |head: Head| matches!(head.kind, HEADERS | CONTINUATION);
        if given && Head::first(self.input.bytes()).is_some_and(of_section) {
            return Turn::Wait;
        }
        let most = SECTION * self.context.limits.head_bytes.max(MOST);
        match self.client.next(self.input.bytes_mut(), most, &mut self.server, &mut self.windows) {
            Step::More => return Turn::Receive,
            Step::Pass(count) => self.pass = count,
            Step::Swallow(count) => self.input.consume(count),
            Step::End(_) if given => return Turn::Wait,
            Step::Section(length, section) => match self.section(&section, length) {
                Ok(()) => self.input.consume(length),
                Err(reason) => return self.end(reason),
            },
            Step::End(reason) => return self.end(reason),
        }
        Turn::Go
    }

    /// Ends the connection.
    fn end(&mut self, reason: Reason) -> Turn {
        self.over = true;
        self.shared.end(reason);
        Turn::Over
    }

    /// Answers the request in a field section that became complete with this many received bytes, or passes it to h2.
    /// Fails with the reason to end the connection.
    fn section(&mut self, section: &FieldSection, length: usize) -> Result<(), Reason> {
        let Self { service, context, shared, input, client, decoder, server, windows, output, told, .. } =
            self;
        let block = section.block(&input.bytes()[..length]);
        let limits = &context.limits;
        let asking = Asking { worker: &context.worker, peer: &context.peer, more: &context.more };
        with_buffers(|read, answer| {
            let fits = decoder.read(read, block, limits.head_bytes)?;
            // Only if an answer can still be left to h2.
            let asked = fits
                && section.ends
                && !section.depends_on_itself()
                && client.may_answer(section.stream, server)
                && shared.has_room();
            let request = if asked { PlainRequest::of(read, limits.fields, SCHEMES) } else { None };
            if let Some(request) = request
                && let Some(body) = asking.ask(service, &request.lines(block.len()), answer)
            {
                let (room, out) = (windows.room(), output.buffer());
                if let Some(length) = answer::write(answer, &body, section.stream, room, out) {
                    windows.take(length);
                    client.answered(section.stream);
                    shared.count();
                    return Ok(());
                }
                shared.leave(section.stream, (Bytes::copy_from_slice(answer), body));
            }
            client.pass(section.stream);
            section.write(read, told);
            Ok(())
        })
    }

    /// Sends the answers.
    fn poll_send(
        &mut self,
        io: &mut CorkedIo<impl AsyncWrite + Unpin>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let sent = self.output.poll_write(&mut io.uncorked(), context, |_| ());
        self.shared.set_unsent(sent.is_pending());
        if sent.is_pending() {
            let worker = &self.context.worker;
            let held = self.held.get_or_insert_with(|| worker.answers.held());
            if !held.resize(self.output.held() as u64) {
                worker.counts().shed_answers.increment();
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            return Poll::Pending;
        }
        self.held = None;
        self.client.sent();
        if let Some(started) = self.timed.take() {
            self.context.worker.counts().answered(started);
        }
        if std::mem::take(&mut self.paused) {
            context.waker().wake_by_ref();
        }
        sent
    }

    /// Sends the answers if h2 is between frames and its first bytes need not go first.
    #[inline]
    fn poll_between(
        &mut self,
        io: &mut CorkedIo<impl AsyncWrite + Unpin>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if (self.output.is_empty() && !self.paused) || !self.server.is_between() {
            return Poll::Ready(Ok(()));
        }
        self.poll_send(io, context)
    }

    /// Writes h2's frames, and rewrites some of them.
    fn poll_write(
        &mut self,
        io: &mut CorkedIo<impl AsyncWrite + Unpin>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_between(io, context))?;
        let first = pieces.iter().find(|piece| !piece.is_empty()).map_or(&b""[..], |piece| piece);
        // What follows the first piece is the payload of a frame that starts there.
        let last = self.client.last_answered();
        let count = self.server.before_rewritten(first, last);
        if count == 0
            && !first.is_empty()
            && let Some(taken) = self.server.rewrite(first, last, self.output.buffer())
        {
            return Poll::Ready(Ok(taken));
        }
        let written = if pieces.len() > 1 && count == first.len() {
            ready!(Pin::new(io).poll_write_vectored(context, pieces))?
        } else {
            // An incomplete GOAWAY cannot be rewritten, so all of the first piece is written.
            let part = if count == 0 { first } else { &first[..count] };
            ready!(Pin::new(io).poll_write(context, part))?
        };
        let mut left = written;
        for piece in pieces {
            let part = left.min(piece.len());
            self.server.advance(&piece[..part], |data| self.windows.passed(data));
            left -= part;
        }
        if self.windows.is_owed() {
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(written))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin, S: HttpService> AsyncRead for FastPathIo<I, S> {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, fast } = &mut *self;
        match fast {
            Some(fast) if S::FAST => fast.poll_read(io, context, out),
            _ => Pin::new(io).poll_read(context, out),
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin, S: HttpService> AsyncWrite for FastPathIo<I, S> {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { io, fast } = &mut *self;
        match fast {
            Some(fast) if S::FAST => fast.poll_write(io, context, &[IoSlice::new(bytes)]),
            _ => Pin::new(io).poll_write(context, bytes),
        }
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { io, fast } = &mut *self;
        match fast {
            Some(fast) if S::FAST => fast.poll_write(io, context, pieces),
            _ => Pin::new(io).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, fast } = &mut *self;
        if S::FAST
            && let Some(fast) = fast
        {
            ready!(fast.poll_between(io, context))?;
        }
        Pin::new(io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, fast } = &mut *self;
        if S::FAST
            && let Some(fast) = fast
        {
            ready!(fast.poll_between(io, context))?;
        }
        Pin::new(io).poll_shutdown(context)
    }
}
