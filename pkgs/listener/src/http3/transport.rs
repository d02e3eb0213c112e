//! The interface between h3 and a QUIC connection.
//!
//! Besides carrying bytes, it checks the frames in them. h3 collects a whole frame before it looks at it, however long
//! the frame claims to be, waits for ever for the rest of an integer that a frame lacks, and accepts a stream that ends
//! within a DATA frame. This layer stops all of that, and collects the frames itself, which h3 does at great cost.

use std::cell::Cell;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn_proto::{ConnectionError, VarInt};

use super::error_code::varint;
use super::fast_path::{EarlyReads, StreamFastPath};
use super::frames::{Frames, Violation};
use crate::http_service::HttpService;
use crate::quic_driver::{self, ReadError, WriteError};

/// How many bytes are copied at a time if copying cannot be avoided.
const COPY_BYTES: usize = 32 * 1024;

/// Frames up to this size are sent as one piece: they fit a packet (RFC 9000, section 14: at least 1200 bytes).
const SMALL: usize = 1200;

thread_local! {
    /// The payload that is being handed to h3. h3 returns it after its frame's head, as a buffer that can only be
    /// copied, but its bytes are still at the same address.
    static PAYLOAD: Cell<Bytes> = const { Cell::new(Bytes::new()) };
}

/// Remembers a payload that is handed to h3. Call this in the same poll.
pub(super) fn payload(bytes: Bytes) -> Bytes {
    PAYLOAD.set(bytes.clone());
    bytes
}

/// A connection.
pub(super) struct Connection<S> {
    quic: quic_driver::Connection,
    /// The fast path, which answers before h3. It never opens streams.
    fast: Option<StreamFastPath<S>>,
    frame_limit: u64,
}

impl<S: HttpService> Connection<S> {
    /// Wraps `quic`. Only DATA frames may be longer than `frame_limit` bytes.
    pub(super) fn new(
        quic: quic_driver::Connection,
        fast: Option<StreamFastPath<S>>,
        frame_limit: u64,
    ) -> Self {
        Self { quic, fast, frame_limit }
    }

    fn receiving(&self, stream: quic_driver::RecvStream, frames: Frames) -> RecvStream {
        let quic = self.quic.clone();
        RecvStream { quic, stream, found: [None, None], received: Bytes::new(), frames }
    }
}

impl<S: HttpService> quic::Connection<Bytes> for Connection<S> {
    type RecvStream = RecvStream;
    type OpenStreams = Self;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let stream = ready!(self.quic.poll_accept_uni(cx)).map_err(incoming)?;
        Poll::Ready(Ok(self.receiving(stream, Frames::unidirectional(self.frame_limit))))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream, ConnectionErrorIncoming>> {
        let (send, recv, found) = match &mut self.fast {
            Some(fast) => ready!(fast.poll_for_h3(&self.quic, cx)).map_err(incoming)?,
            None => {
                let (send, recv) = ready!(self.quic.poll_accept_bi(cx)).map_err(incoming)?;
                (send, recv, [None, None])
            }
        };
        let mut recv = self.receiving(recv, Frames::request(self.frame_limit));
        recv.found = found;
        Poll::Ready(Ok(BidiStream { send: SendStream::new(send), recv }))
    }

    fn opener(&self) -> Self {
        Self::new(self.quic.clone(), None, self.frame_limit)
    }
}

impl<S: HttpService> quic::OpenStreams<Bytes> for Connection<S> {
    type BidiStream = BidiStream;
    type SendStream = SendStream;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        // RFC 9114, section 6.1: HTTP/3 does not use server-initiated bidirectional streams.
        let error = ConnectionErrorIncoming::InternalError("servers open no such stream".into());
        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error: error }))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<SendStream, StreamErrorIncoming>> {
        self.quic.poll_open_uni(cx).map_ok(SendStream::new).map_err(lost)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.quic.close(varint(code.value()), reason);
    }
}

/// Both directions of a request's stream.
pub(super) struct BidiStream {
    send: SendStream,
    recv: RecvStream,
}

impl quic::BidiStream<Bytes> for BidiStream {
    type SendStream = SendStream;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }
}

impl quic::RecvStream for BidiStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        self.recv.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl quic::SendStream<Bytes> for BidiStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

/// The client's direction of a stream.
pub(super) struct RecvStream {
    quic: quic_driver::Connection,
    stream: quic_driver::RecvStream,
    /// What was already read from it.
    found: EarlyReads,
    /// What was received, but h3 does not have yet.
    received: Bytes,
    frames: Frames,
}

impl RecvStream {
    fn violated(&self, violation: Violation) -> StreamErrorIncoming {
        let (code, reason) = match violation {
            Violation::TooLong => (Code::H3_EXCESSIVE_LOAD, "a frame is too long"),
            Violation::Truncated => (Code::H3_FRAME_ERROR, "a stream ends within a frame"),
            Violation::Push => (Code::H3_STREAM_CREATION_ERROR, "clients do not push"),
            Violation::Malformed => (Code::H3_FRAME_ERROR, "a frame is malformed"),
            Violation::Growing => (Code::H3_ID_ERROR, "a GOAWAY names a later push than the last one"),
        };
        self.quic.close(varint(code.value()), reason.as_bytes());
        lost(ConnectionError::LocallyClosed)
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            match self.frames.next(&mut self.received) {
                Ok(None) => {}
                Ok(Some(piece)) => {
                    if let Some(stream) = self.frames.qpack() {
                        let (rest, received) = (self.stream.leave(), std::mem::take(&mut self.received));
                        tokio::spawn(stream.read(self.quic.clone(), rest, received));
                    }
                    return Poll::Ready(Ok(Some(piece)));
                }
                Err(violation) => return Poll::Ready(Err(self.violated(violation))),
            }
            let read = match self.found.iter_mut().find_map(Option::take) {
                Some(found) => found,
                None => {
                    let mut piece = [Bytes::new()];
                    let read = ready!(self.stream.poll_read(cx, &mut piece));
                    let [piece] = piece;
                    read.map(|count| (count > 0).then_some(piece))
                }
            };
            match read {
                Ok(Some(bytes)) => self.received = bytes,
                Ok(None) => {
                    let ended = self.frames.end().map(|()| None);
                    return Poll::Ready(ended.map_err(|violation| self.violated(violation)));
                }
                Err(ReadError::Reset(code)) => {
                    return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated {
                        error_code: code.into(),
                    }));
                }
                Err(ReadError::Lost(error)) => return Poll::Ready(Err(lost(error))),
                Err(ReadError::Closed) => return Poll::Ready(Err(closed())),
            }
        }
    }

    fn stop_sending(&mut self, code: u64) {
        self.stream.stop(varint(code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        // RFC 9114, section 4.1: the unread rest of an answered request is stopped without an error.
        self.stream.stop(varint(Code::H3_NO_ERROR.value()));
    }
}

/// The server's direction of a stream.
pub(super) struct SendStream {
    stream: quic_driver::SendStream,
    /// A frame that is being sent.
    frame: Option<WriteBuf<Bytes>>,
    /// The payload after its head, if known.
    payload: Bytes,
    /// Parts of it that the stream has not taken yet.
    pieces: [Bytes; 2],
}

impl SendStream {
    fn new(stream: quic_driver::SendStream) -> Self {
        Self { stream, frame: None, payload: Bytes::new(), pieces: Default::default() }
    }
}

impl quic::SendStream<Bytes> for SendStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        loop {
            match ready!(self.stream.poll_write(cx, &mut self.pieces)) {
                Ok(()) => {}
                Err(WriteError::Stopped(code)) => {
                    let error = StreamErrorIncoming::StreamTerminated { error_code: code.into() };
                    return Poll::Ready(Err(error));
                }
                Err(WriteError::Lost(error)) => return Poll::Ready(Err(lost(error))),
                Err(WriteError::Closed) => return Poll::Ready(Err(closed())),
            }
            match &mut self.frame {
                Some(frame) if frame.has_remaining() => self.pieces = cut(frame, &self.payload),
                _ => break,
            }
        }
        self.frame = None;
        self.payload = Bytes::new();
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        debug_assert!(self.frame.is_none(), "h3 waits until a frame is sent");
        self.frame = Some(data.into());
        self.payload = PAYLOAD.take();
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.finish();
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, code: u64) {
        self.stream.reset(varint(code));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

/// The next part of a frame: its head, followed by as much as possible without copying.
fn cut(frame: &mut WriteBuf<Bytes>, payload: &Bytes) -> [Bytes; 2] {
    if frame.remaining() <= SMALL {
        return [frame.copy_to_bytes(frame.remaining()), Bytes::new()];
    }
    let head = match known(frame, payload) {
        Some(_) => Bytes::new(),
        None => frame.copy_to_bytes(frame.chunk().len().min(COPY_BYTES)),
    };
    let known = known(frame, payload).unwrap_or_default();
    frame.advance(known.len());
    [head, known]
}

/// The next bytes of a frame as a part of the payload, if they are one.
fn known(frame: &WriteBuf<Bytes>, payload: &Bytes) -> Option<Bytes> {
    let next = frame.chunk();
    payload.as_ptr_range().contains(&next.as_ptr()).then(|| payload.slice_ref(next))
}

fn stream_id(id: quinn_proto::StreamId) -> StreamId {
    StreamId::try_from(u64::from(VarInt::from(id))).expect("an id of 62 bits")
}

fn closed() -> StreamErrorIncoming {
    StreamErrorIncoming::Unknown("the stream is closed".into())
}

fn lost(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: incoming(error) }
}

fn incoming(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(std::sync::Arc::new(error)),
    }
}
