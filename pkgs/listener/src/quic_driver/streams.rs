//! The two directions of a stream.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use quinn_proto::{ConnectionError, Dir, FinishError, StreamId, VarInt};

use super::connection::{Connection, Shared, State};

impl Connection {
    /// The next stream in both directions that the client has opened, and the result of reading it, with one lock. One
    /// task may wait for it.
    pub(crate) fn poll_accept_read(
        &self,
        cx: &mut Context<'_>,
        pieces: &mut [Bytes],
    ) -> Poll<Result<(Opened, PollRead), ConnectionError>> {
        let mut state = self.state();
        let id = ready!(self.poll_accept_locked(&mut state, Dir::Bi, cx))?;
        let mut receiving = Receiving::new(id);
        let read = receiving.poll_read(self.shared(), &mut state, cx, pieces);
        Poll::Ready(Ok((Opened(receiving), read)))
    }

    /// The next stream in both directions that the client has opened. One task may wait for it.
    pub(crate) fn poll_accept_bi(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        self.poll_accept(Dir::Bi, cx).map_ok(|id| Opened(Receiving::new(id)).streams(self))
    }

    /// The next stream that only the client sends on. One task may wait for it.
    pub(crate) fn poll_accept_uni(&self, cx: &mut Context<'_>) -> Poll<Result<RecvStream, ConnectionError>> {
        let accepted = self.poll_accept(Dir::Uni, cx);
        accepted.map_ok(|id| RecvStream { connection: self.clone(), receiving: Receiving::new(id) })
    }

    /// A stream that only this side sends on, once the client allows one. One task may wait for it.
    pub(crate) fn poll_open_uni(&self, cx: &mut Context<'_>) -> Poll<Result<SendStream, ConnectionError>> {
        self.poll_open(cx).map_ok(|id| SendStream { connection: self.clone(), id })
    }
}

/// Why a stream cannot be read.
#[derive(Clone, Debug)]
pub(crate) enum ReadError {
    /// The client has reset it.
    Reset(VarInt),
    /// The connection has ended.
    Lost(ConnectionError),
    /// It was stopped, or has been read to its end.
    Closed,
}

/// How many pieces were read, 0 at the end.
pub(crate) type PollRead = Poll<Result<usize, ReadError>>;

/// Why a stream cannot be written.
#[derive(Clone, Debug)]
pub(crate) enum WriteError {
    /// The client wants no more of it.
    Stopped(VarInt),
    /// The connection has ended.
    Lost(ConnectionError),
    /// It was ended or reset.
    Closed,
}

/// A stream in both directions that the client has opened, without a handle of its connection: until it has
/// [streams](Self::streams), nothing happens when it is dropped.
#[derive(Debug)]
pub(crate) struct Opened(Receiving);

impl Opened {
    /// Whether it was read to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended
    }

    /// Writes these pieces and the stream's end, with one lock. Pending if there is no room for all: what is not
    /// written stays in the pieces.
    pub(crate) fn poll_write_last(
        &self,
        connection: &Connection,
        cx: &mut Context<'_>,
        pieces: &mut [Bytes],
    ) -> Poll<Result<(), WriteError>> {
        let (shared, mut state) = (connection.shared(), connection.state());
        ready!(poll_write(shared, &mut state, self.0.id, cx, pieces))?;
        if state.inner.send_stream(self.0.id).finish().is_ok() {
            shared.queue_locked(&mut state);
        }
        Poll::Ready(Ok(()))
    }

    /// Its two directions.
    pub(crate) fn streams(self, connection: &Connection) -> (SendStream, RecvStream) {
        let send = SendStream { connection: connection.clone(), id: self.0.id };
        (send, RecvStream { connection: connection.clone(), receiving: self.0 })
    }
}

/// How far a stream was read.
#[derive(Debug)]
struct Receiving {
    id: StreamId,
    /// Whether it was read to its end.
    ended: bool,
    /// A reset that came after the data that was returned.
    reset: Option<VarInt>,
}

impl Receiving {
    fn new(id: StreamId) -> Self {
        Self { id, ended: false, reset: None }
    }

    /// Reads the next pieces of a stream that has not ended.
    fn poll_read(
        &mut self,
        shared: &Shared,
        state: &mut State,
        cx: &mut Context<'_>,
        pieces: &mut [Bytes],
    ) -> PollRead {
        let mut stream = state.inner.recv_stream(self.id);
        let Ok(mut chunks) = stream.read(true) else { return Poll::Ready(Err(ReadError::Closed)) };
        let mut read = 0;
        while read < pieces.len() {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    pieces[read] = chunk.bytes;
                    read += 1;
                    continue;
                }
                Ok(None) => self.ended = true,
                Err(quinn_proto::ReadError::Reset(code)) => self.reset = Some(code),
                Err(quinn_proto::ReadError::Blocked) => {}
            }
            break;
        }
        if chunks.finalize().should_transmit() {
            shared.queue_locked(state);
        }
        if read > 0 || self.ended {
            return Poll::Ready(Ok(read));
        }
        if let Some(code) = self.reset {
            return Poll::Ready(Err(ReadError::Reset(code)));
        }
        if let Some(error) = &state.error {
            return Poll::Ready(Err(ReadError::Lost(error.clone())));
        }
        state.readers.insert(self.id, cx.waker().clone());
        Poll::Pending
    }
}

/// A stream that the client sends on. If it is dropped before its end, the client is told to stop.
#[derive(Debug)]
pub(crate) struct RecvStream {
    connection: Connection,
    receiving: Receiving,
}

impl RecvStream {
    pub(crate) fn id(&self) -> StreamId {
        self.receiving.id
    }

    /// Reads the next pieces, as many as there are places. Returns their number, and 0 at the end. One task may wait
    /// for them.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, pieces: &mut [Bytes]) -> PollRead {
        let Self { connection, receiving } = self;
        if receiving.ended {
            return Poll::Ready(Ok(0));
        }
        if let Some(code) = receiving.reset {
            return Poll::Ready(Err(ReadError::Reset(code)));
        }
        receiving.poll_read(connection.shared(), &mut connection.state(), cx, pieces)
    }

    /// Leaves the rest of it to another handle. This one has ended.
    pub(crate) fn leave(&mut self) -> Self {
        let Receiving { id, ended, reset } = &mut self.receiving;
        let receiving = Receiving { id: *id, ended: std::mem::replace(ended, true), reset: reset.take() };
        Self { connection: self.connection.clone(), receiving }
    }

    /// Tells the client to send no more. Nothing more can be read.
    pub(crate) fn stop(&mut self, code: VarInt) {
        let Receiving { id, ended, .. } = &mut self.receiving;
        if std::mem::replace(ended, true) {
            return;
        }
        let mut state = self.connection.state();
        state.readers.remove(id);
        if state.error.is_none() && state.inner.recv_stream(*id).stop(code).is_ok() {
            self.connection.shared().queue_locked(&mut state);
        }
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        self.stop(VarInt::from_u32(0));
    }
}

fn poll_write(
    shared: &Shared,
    state: &mut State,
    id: StreamId,
    cx: &mut Context<'_>,
    pieces: &mut [Bytes],
) -> Poll<Result<(), WriteError>> {
    while !pieces.iter().all(Bytes::is_empty) {
        if let Some(error) = &state.error {
            return Poll::Ready(Err(WriteError::Lost(error.clone())));
        }
        match state.inner.send_stream(id).write_chunks(pieces) {
            Ok(_) => shared.queue_locked(state),
            Err(quinn_proto::WriteError::Blocked) => {
                state.writers.insert(id, cx.waker().clone());
                return Poll::Pending;
            }
            Err(quinn_proto::WriteError::Stopped(code)) => {
                return Poll::Ready(Err(WriteError::Stopped(code)));
            }
            Err(quinn_proto::WriteError::ClosedStream) => return Poll::Ready(Err(WriteError::Closed)),
        }
    }
    Poll::Ready(Ok(()))
}

/// A stream that this side sends on. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct SendStream {
    connection: Connection,
    id: StreamId,
}

impl SendStream {
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// Writes these pieces, and removes what is written from them. Pending if there is no room for all. One task may
    /// wait for it.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &mut [Bytes],
    ) -> Poll<Result<(), WriteError>> {
        // Who is about to write asks whether the last frame is sent, which mostly needs no lock.
        if pieces.iter().all(Bytes::is_empty) {
            return Poll::Ready(Ok(()));
        }
        poll_write(self.connection.shared(), &mut self.connection.state(), self.id, cx, pieces)
    }

    /// Ends it: all that was written is sent. A stream that was stopped or has ended needs no end.
    pub(crate) fn finish(&mut self) {
        let mut state = self.connection.state();
        if state.error.is_none() {
            let ended = state.inner.send_stream(self.id).finish();
            self.queue_if(&mut state, ended.is_ok());
        }
    }

    /// Ends it without the rest. A stream that is closed has nothing to reset.
    pub(crate) fn reset(&mut self, code: VarInt) {
        let mut state = self.connection.state();
        if state.error.is_none() {
            let reset = state.inner.send_stream(self.id).reset(code);
            self.queue_if(&mut state, reset.is_ok());
        }
    }

    fn queue_if(&self, state: &mut State, changed: bool) {
        if changed {
            self.connection.shared().queue_locked(state);
        }
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let mut state = self.connection.state();
        if !state.writers.is_empty() {
            state.writers.remove(&self.id);
        }
        if state.error.is_some() {
            return;
        }
        let mut stream = state.inner.send_stream(self.id);
        let changed = match stream.finish() {
            Ok(()) => true,
            // RFC 9000, section 3.5: who is told to stop resets the stream.
            Err(FinishError::Stopped(code)) => stream.reset(code).is_ok(),
            Err(FinishError::ClosedStream) => false,
        };
        self.queue_if(&mut state, changed);
    }
}
