//! Request bodies.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::config::Limits;
use crate::{http1, http2};

/// The body of a request, whatever it came by, no longer and no slower than the [`Limits`] allow.
#[derive(Debug)]
pub struct Body {
    kind: Kind,
    /// Bytes that may still come.
    left: u64,
    /// The longest pause.
    idle: Duration,
    /// Made when the first pause begins.
    pause: Option<Pin<Box<Sleep>>>,
}

/// Where a body comes from.
enum Kind {
    Empty,
    /// All of it has arrived.
    Whole(Bytes),
    Http1(http1::inbound::Reader),
    Http2(http2::inbound::Reader),
    Boxed(Source),
}

/// A body of any other origin.
pub(crate) type Source = Pin<Box<dyn http_body::Body<Data = Bytes, Error = Error> + Send>>;

/// Why a request body ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is longer than [`Limits::body_bytes`]: 413 is the answer.
    #[error("the request body is longer than allowed")]
    TooLarge,
    /// Nothing came for [`Limits::body_idle`]: 408 is the answer.
    #[error("the request body paused for longer than {0:?}")]
    Idle(Duration),
    /// The connection or the stream ended before it did.
    #[error("the request body is incomplete")]
    Incomplete,
    /// Its framing is malformed: 400 is the answer.
    #[error("the request body is malformed: {0}")]
    Malformed(&'static str),
    /// The protocol below failed.
    #[error("the request body cannot be received")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Body {
    /// No body.
    pub fn empty() -> Self {
        Self { kind: Kind::Empty, left: 0, idle: Duration::MAX, pause: None }
    }

    /// A body that has arrived whole.
    pub fn whole(bytes: Bytes) -> Self {
        let left = bytes.len() as u64;
        Self { kind: Kind::Whole(bytes), left, idle: Duration::MAX, pause: None }
    }

    pub(crate) fn http1(reader: http1::inbound::Reader, limits: &Limits) -> Self {
        Self { kind: Kind::Http1(reader), left: limits.body_bytes, idle: limits.body_idle, pause: None }
    }

    pub(crate) fn http2(reader: http2::inbound::Reader, limits: &Limits) -> Self {
        Self { kind: Kind::Http2(reader), left: limits.body_bytes, idle: limits.body_idle, pause: None }
    }

    /// A body of another origin; the limits are enforced here, not there.
    pub(crate) fn boxed(source: Source, limits: &Limits) -> Self {
        Self { kind: Kind::Boxed(source), left: limits.body_bytes, idle: limits.body_idle, pause: None }
    }

    fn poll_source(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.kind {
            Kind::Empty => Poll::Ready(None),
            Kind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Http1(reader) => reader.poll_frame(context),
            Kind::Http2(reader) => reader.poll_frame(context),
            Kind::Boxed(source) => source.as_mut().poll_frame(context),
        }
    }

    /// Whether the pause has become too long.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let idle = self.idle;
        self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle))).as_mut().poll(context)
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let body = self.get_mut();
        let Poll::Ready(frame) = body.poll_source(context) else {
            ready!(body.poll_pause(context));
            body.kind = Kind::Empty;
            return Poll::Ready(Some(Err(Error::Idle(body.idle))));
        };
        if let Some(pause) = &mut body.pause {
            pause.as_mut().reset(Instant::now() + body.idle);
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            match body.left.checked_sub(data.len() as u64) {
                Some(left) => body.left = left,
                None => {
                    body.kind = Kind::Empty;
                    return Poll::Ready(Some(Err(Error::TooLarge)));
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Http1(reader) => reader.is_end(),
            Kind::Http2(reader) => reader.is_end(),
            Kind::Boxed(source) => source.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Http1(reader) => reader.size_hint(),
            Kind::Http2(reader) => reader.size_hint(),
            Kind::Boxed(source) => source.size_hint(),
        }
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Whole(_) => "Whole",
            Self::Http1(_) => "Http1",
            Self::Http2(_) => "Http2",
            Self::Boxed(_) => "Boxed",
        })
    }
}
