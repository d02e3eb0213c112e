//! Request bodies.

mod expectation;
pub(crate) mod http1;
pub(crate) mod http2;

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::config::Limits;
use crate::limits::BodyReservation;

pub(crate) use expectation::Expectation;

/// A request's body, over any protocol. It is no longer and no slower than the [`Limits`] allow.
#[derive(Debug)]
pub struct Body {
    kind: Kind,
    /// Bytes that may still come.
    left: u64,
    /// The longest pause, in milliseconds.
    idle: u32,
    /// The time from the first pause to the body's end, in milliseconds.
    time: u32,
    /// Made at the first pause.
    pause: Option<Box<Pause>>,
}

/// The deadlines of a body that is being waited for.
#[derive(Debug)]
struct Pause {
    timer: Pin<Box<Sleep>>,
    /// When the whole body has to be there.
    end: Instant,
}

impl Pause {
    fn begin(idle: u32, time: u32) -> Self {
        let end = after(time);
        Self { timer: Box::pin(sleep_until(after(idle).min(end))), end }
    }

    /// Something arrived, so the pause starts anew.
    fn again(&mut self, idle: u32) {
        let until = after(idle).min(self.end);
        self.timer.as_mut().reset(until);
    }
}

/// The time this many milliseconds from now.
fn after(time: u32) -> Instant {
    Instant::now() + millis(time)
}

fn millis(time: u32) -> Duration {
    Duration::from_millis(time.into())
}

/// Milliseconds as a quarter of a [`Duration`]'s size, since every connection has space for bodies; at most seven
/// weeks.
fn short(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The source of a body.
enum Kind {
    Empty,
    /// It has completely arrived.
    Whole(Bytes),
    Http1(http1::Reader),
    Http2(http2::Reader),
    Boxed(Source),
}

/// A body of any other origin.
pub(crate) type Source = Pin<Box<dyn http_body::Body<Data = Bytes, Error = Error> + Send>>;

/// Why a request body ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is longer than [`Limits::body_bytes`]; answered with 413.
    #[error("the request body is longer than allowed")]
    TooLarge,
    /// Nothing arrived for [`Limits::body_idle`]; answered with 408.
    #[error("the request body paused for longer than {0:?}")]
    Idle(Duration),
    /// It took longer than [`Limits::body_time`]; answered with 408.
    #[error("the request body took longer than {0:?}")]
    Slow(Duration),
    /// The connection or stream ended before it.
    #[error("the request body is incomplete")]
    Incomplete,
    /// Its framing is malformed; answered with 400.
    #[error("the request body is malformed: {0}")]
    Malformed(&'static str),
    /// The underlying protocol failed.
    #[error("the request body cannot be received")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Body {
    /// An empty body.
    pub fn empty() -> Self {
        Self::new(Kind::Empty, 0, u32::MAX, u32::MAX)
    }

    /// A body that has completely arrived.
    pub fn whole(bytes: Bytes) -> Self {
        let left = bytes.len() as u64;
        Self::new(Kind::Whole(bytes), left, u32::MAX, u32::MAX)
    }

    fn new(kind: Kind, left: u64, idle: u32, time: u32) -> Self {
        Self { kind, left, idle, time, pause: None }
    }

    pub(crate) fn http1(reader: http1::Reader, limits: &Limits) -> Self {
        Self::limited(Kind::Http1(reader), limits)
    }

    pub(crate) fn http2(reader: http2::Reader, limits: &Limits) -> Self {
        Self::limited(Kind::Http2(reader), limits)
    }

    /// A body from another source. The limits are enforced here, not in the source.
    pub(crate) fn boxed(source: Source, limits: &Limits) -> Self {
        Self::limited(Kind::Boxed(source), limits)
    }

    /// Limits the body to the reserved number of bytes.
    pub(crate) const fn within(mut self, room: &BodyReservation) -> Self {
        self.left = room.bytes();
        self
    }

    fn limited(kind: Kind, limits: &Limits) -> Self {
        Self::new(kind, limits.body_bytes, short(limits.body_idle), short(limits.body_time))
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

    /// Whether waiting for the body has timed out.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        let (idle, time) = (self.idle, self.time);
        let pause = self.pause.get_or_insert_with(|| Box::new(Pause::begin(idle, time)));
        ready!(pause.timer.as_mut().poll(context));
        let paused = pause.timer.deadline() < pause.end;
        Poll::Ready(if paused { Error::Idle(millis(idle)) } else { Error::Slow(millis(time)) })
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
            let error = ready!(body.poll_pause(context));
            if let Kind::Http1(reader) = &body.kind {
                reader.give_up();
            }
            body.kind = Kind::Empty;
            return Poll::Ready(Some(Err(error)));
        };
        if let Some(pause) = &mut body.pause {
            pause.again(body.idle);
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
