//! A request body that did not arrive with its head. The connection receives it and the service reads it, with at most
//! one piece between them, so the client has to wait for the service.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use request_head::chunked::{Chunked, Found};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body::http1::{Reader, Shared, State, wake};
use crate::body::{Body, Error};

use super::buffered_io::BufferedIo;
use super::decode::Framing;

/// How many bytes of an unread body are received to keep the connection. Beyond that, a new connection is cheaper.
const DISCARD_BYTES: u64 = 64 * 1024;

/// The connection's end.
pub enum RequestBody {
    /// Everything has been received.
    Done,
    /// More is to be received.
    Receiving(Receiver),
}

/// The part of a body that is still to be received.
pub struct Receiver {
    decoder: Decoder,
    /// Whether the client waits for status 100 before it sends anything.
    expected: bool,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy)]
enum Decoder {
    Length(u64),
    Chunked(Chunked),
}

impl RequestBody {
    /// A request's body, and its receiver.
    pub fn new<I: AsyncRead + AsyncWrite + Unpin>(
        framing: Framing,
        expected: bool,
        conn: &mut BufferedIo<'_, I>,
    ) -> (Body, Self) {
        let decoder = match framing {
            Framing::Length(0) => return (Body::empty(), Self::Done),
            Framing::Length(length) => {
                let received = conn.input.bytes();
                if let Some(whole) = usize::try_from(length).ok().and_then(|length| received.get(..length)) {
                    let whole = Bytes::copy_from_slice(whole);
                    conn.input.consume(whole.len());
                    return (Body::whole(whole), Self::Done);
                }
                Decoder::Length(length)
            }
            Framing::Chunked => Decoder::Chunked(Chunked::new()),
        };
        let shared = Arc::new(Shared::default());
        let exact = if let Decoder::Length(length) = decoder { Some(length) } else { None };
        let body = Body::http1(Reader { shared: Arc::clone(&shared), exact }, conn.limits());
        // If something has arrived already, the client did not wait.
        let expected = expected && conn.input.is_empty();
        (body, Self::Receiving(Receiver { decoder, expected, shared }))
    }

    /// How many more bytes are to come, if any and if known.
    pub fn announced(&self) -> Option<Option<u64>> {
        match self {
            Self::Done => None,
            Self::Receiving(Receiver { decoder: Decoder::Length(length), .. }) => Some(Some(*length)),
            Self::Receiving(Receiver { decoder: Decoder::Chunked(_), .. }) => Some(None),
        }
    }

    /// Whether the connection can be reused once the response is sent, given the unread bytes of the body that have
    /// `arrived`.
    pub fn is_reusable(&self, arrived: &[u8]) -> bool {
        match self {
            Self::Done => true,
            Self::Receiving(Receiver { expected: true, .. }) => false,
            // RFC 9110, section 15.5.9: after a timeout the connection is not kept.
            Self::Receiving(receiver) if receiver.shared.lock().late => false,
            Self::Receiving(Receiver { decoder: Decoder::Length(left), .. }) => *left <= DISCARD_BYTES,
            Self::Receiving(Receiver { decoder: Decoder::Chunked(chunked), .. }) => ends(*chunked, arrived),
        }
    }

    /// The response starts. A client that waits for status 100 goes by the response instead, and would take a later 100
    /// for a part of it (RFC 9110, section 10.1.1).
    pub fn answered(&mut self) {
        if let Self::Receiving(receiver) = self {
            receiver.expected = false;
        }
    }

    /// Receives as much as the service reads. Returns whether the service, which runs in this task, was waiting for it
    /// and has to be polled again.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn pump<I: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        conn: &mut BufferedIo<'_, I>,
        context: &mut Context<'_>,
    ) -> io::Result<bool> {
        let Self::Receiving(receiver) = self else { return Ok(false) };
        let (progress, done) = receiver.pump(conn, context)?;
        if done {
            *self = Self::Done;
        }
        Ok(progress)
    }

    /// Receives what nobody reads, so that the next request can be found. Returns whether that worked.
    pub fn poll_discard<I: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        conn: &mut BufferedIo<'_, I>,
        context: &mut Context<'_>,
        discarded: &mut u64,
    ) -> Poll<bool> {
        let Self::Receiving(receiver) = self else { return Poll::Ready(true) };
        loop {
            match receiver.decoder.decode(conn.input.bytes()) {
                Ok(Found::End { skip }) => {
                    conn.input.consume(skip);
                    return Poll::Ready(true);
                }
                Ok(Found::Data { skip, length }) => {
                    conn.input.consume(skip + length);
                    *discarded += length as u64;
                }
                Ok(Found::More { skip }) => {
                    conn.input.consume(skip);
                    match conn.poll_receive(context) {
                        Poll::Ready(Ok(1..)) => {}
                        Poll::Ready(_) => return Poll::Ready(false),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Err(_) => return Poll::Ready(false),
            }
            if *discarded > DISCARD_BYTES {
                return Poll::Ready(false);
            }
        }
    }
}

/// Whether a chunked body is at its end, or very likely is: everything sent was read, and only the last chunk is
/// missing. Nobody knows how much more there is, and a client that is told that the connection stays open must find it
/// open.
fn ends(mut chunked: Chunked, mut arrived: &[u8]) -> bool {
    let mut unread = 0;
    loop {
        match chunked.decode(arrived) {
            Ok(Found::End { .. }) => return true,
            Ok(Found::Data { skip, length }) => {
                unread += length as u64;
                if unread > DISCARD_BYTES {
                    return false;
                }
                arrived = &arrived[skip + length..];
            }
            Ok(Found::More { .. }) => return unread == 0 && !chunked.is_in_chunk(),
            Err(_) => return false,
        }
    }
}

impl Receiver {
    /// Returns whether there is progress for a service in this task, and whether the body is at its end.
    fn pump<I: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        conn: &mut BufferedIo<'_, I>,
        context: &mut Context<'_>,
    ) -> io::Result<(bool, bool)> {
        let mut progress = false;
        loop {
            {
                let mut state = self.shared.lock();
                let wait = state.piece.is_some() || state.abandoned || (self.expected && !state.wanted);
                if wait {
                    state.receiver = Some(context.waker().clone());
                    conn.deadline.set_awaits_body(&conn.worker.registry, false);
                    return Ok((progress, false));
                }
            }
            if std::mem::take(&mut self.expected) {
                conn.output.buffer().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            let end = match self.decoder.decode(conn.input.bytes()) {
                Ok(Found::Data { skip, length }) => {
                    let piece = Bytes::copy_from_slice(&conn.input.bytes()[skip..skip + length]);
                    conn.input.consume(skip + length);
                    progress |= self.tell(context, |state| state.piece = Some(piece));
                    continue;
                }
                Ok(Found::End { skip }) => {
                    conn.input.consume(skip);
                    Ok(())
                }
                Ok(Found::More { skip }) => {
                    conn.input.consume(skip);
                    match conn.poll_receive(context) {
                        Poll::Ready(Ok(1..)) => continue,
                        Poll::Ready(Ok(0)) => Err(Error::Incomplete),
                        Poll::Ready(Err(error)) => Err(Error::Transport(error.into())),
                        Poll::Pending => {
                            let mut state = self.shared.lock();
                            let awaited = state.reader.is_some();
                            if !awaited {
                                // The service works on something else. Once it waits, it says so.
                                state.receiver = Some(context.waker().clone());
                            }
                            conn.deadline.set_awaits_body(&conn.worker.registry, awaited);
                            return Ok((progress, false));
                        }
                    }
                }
                Err(malformed) => Err(Error::Malformed(malformed)),
            };
            // After an error, the start of the next request is unknown.
            conn.broken |= end.is_err();
            conn.deadline.set_awaits_body(&conn.worker.registry, false);
            progress |= self.tell(context, |state| state.end = Some(end));
            return Ok((progress, true));
        }
    }

    /// Changes the state that the service sees. Returns whether a service in this task waited for it.
    fn tell(&self, context: &Context<'_>, change: impl FnOnce(&mut State)) -> bool {
        let mut state = self.shared.lock();
        change(&mut state);
        let waiting = state.reader.take();
        drop(state);
        let ours = waiting.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        wake(waiting, context);
        ours
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.end.get_or_insert(Err(Error::Incomplete));
        let waiting = state.reader.take();
        drop(state);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl Decoder {
    fn decode(&mut self, bytes: &[u8]) -> Result<Found, &'static str> {
        match self {
            Self::Length(0) => Ok(Found::End { skip: 0 }),
            Self::Length(_) if bytes.is_empty() => Ok(Found::More { skip: 0 }),
            Self::Length(left) => {
                let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= length as u64;
                Ok(Found::Data { skip: 0, length })
            }
            Self::Chunked(chunked) => chunked.decode(bytes),
        }
    }
}
