//! A request body that has not arrived with its head: the connection receives, the service reads, and what
//! lies between them is one piece, so that the client waits for the service.

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

/// The most that is received of a body nobody reads, to keep the connection. Beyond, a new one is cheaper.
const DISCARD_BYTES: u64 = 64 * 1024;

/// The connection's end.
pub enum RequestBody {
    /// Everything has been received.
    Done,
    /// More is to be received.
    Receiving(Receiver),
}

/// What remains to be received.
pub struct Receiver {
    decoder: Decoder,
    /// Whether the client waits for 100 before it sends anything.
    expected: bool,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy)]
enum Decoder {
    Length(u64),
    Chunked(Chunked),
}

impl RequestBody {
    /// The body of a request, and what receives it.
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
        // What has arrived already was not waited with.
        let expected = expected && conn.input.is_empty();
        (body, Self::Receiving(Receiver { decoder, expected, shared }))
    }

    /// How many bytes are yet to come, where some are and as far as it is known.
    pub fn announced(&self) -> Option<Option<u64>> {
        match self {
            Self::Done => None,
            Self::Receiving(Receiver { decoder: Decoder::Length(length), .. }) => Some(Some(*length)),
            Self::Receiving(Receiver { decoder: Decoder::Chunked(_), .. }) => Some(None),
        }
    }

    /// Whether the connection can be used again once the response is sent, with what of the body has `arrived` and nobody
    /// has read.
    pub fn is_reusable(&self, arrived: &[u8]) -> bool {
        match self {
            Self::Done => true,
            Self::Receiving(Receiver { expected: true, .. }) => false,
            // RFC 9110, section 15.5.9: who does not send it now is not waited for any longer.
            Self::Receiving(receiver) if receiver.shared.lock().late => false,
            Self::Receiving(Receiver { decoder: Decoder::Length(left), .. }) => *left <= DISCARD_BYTES,
            Self::Receiving(Receiver { decoder: Decoder::Chunked(chunked), .. }) => ends(*chunked, arrived),
        }
    }

    /// The response begins: a client that waits for 100 goes by it instead, and 100 would be taken for a part of
    /// it (RFC 9110, section 10.1.1).
    pub fn answered(&mut self) {
        if let Self::Receiving(receiver) = self {
            receiver.expected = false;
        }
    }

    /// Receives as far as the service reads. Says whether the service, which runs in this very task, has
    /// waited for what came of it and is to be polled again.
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

    /// Receives what nobody reads, so that the next request can be found. Says whether it could.
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

/// Whether a chunked body is at its end, or most likely is: all that was sent was read, and only the last chunk is missing.
/// How much more there is, nobody knows: who is told that the connection stays has to find it open.
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
    /// Whether there is progress for a service of this task, and whether the body is at its end.
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
                        Poll::Pending => return Ok((progress, false)),
                    }
                }
                Err(malformed) => Err(Error::Malformed(malformed)),
            };
            // Where the next request begins is not known after an error.
            conn.broken |= end.is_err();
            progress |= self.tell(context, |state| state.end = Some(end));
            return Ok((progress, true));
        }
    }

    /// Changes what the service sees, and says whether a service in this task waited for it.
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
