//! A request body on an HTTP/2 stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Frame, SizeHint};

use crate::lifecycle::ConnectionDeadline;
use crate::worker_context::WorkerContext;

use super::{Error, Expectation};

/// What the bodies of a connection tell it.
pub struct Shared {
    /// The bytes read, for its window.
    pub received: AtomicUsize,
    /// Learns whether the service works, or waits for the client.
    pub deadline: Arc<ConnectionDeadline>,
    pub worker: Arc<WorkerContext>,
}

impl Shared {
    /// The service works on a stream until this is dropped.
    pub fn serving(&self) -> Serving<'_> {
        self.deadline.begin_serving();
        Serving(self)
    }

    fn end_serving(&self) {
        self.deadline.end_serving(&self.worker.registry);
    }
}

/// A stream that the service works on.
pub struct Serving<'a>(&'a Shared);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.end_serving();
    }
}

/// The service's end.
pub struct Reader {
    stream: RecvStream,
    exact: Option<u64>,
    expectation: Expectation,
    shared: Arc<Shared>,
    /// Whether the service waits for more of it.
    awaited: bool,
    data: bool,
}

impl Reader {
    /// The body on `stream`. h2 checks its announced length.
    pub fn new(
        stream: RecvStream,
        exact: Option<u64>,
        expectation: Expectation,
        shared: Arc<Shared>,
    ) -> Self {
        Self { stream, exact, expectation, shared, awaited: false, data: true }
    }

    pub fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = self.poll_stream(context);
        self.set_awaited(polled.is_pending());
        self.expectation.asked(polled.is_pending());
        polled
    }

    /// While the service waits, it does not work on the stream. Where the answer has begun, the stream no longer counts
    /// anyway, and takes away from the others: its client is waited for all the same.
    fn set_awaited(&mut self, awaited: bool) {
        match (std::mem::replace(&mut self.awaited, awaited), awaited) {
            (false, true) => self.shared.end_serving(),
            (true, false) => self.shared.deadline.begin_serving(),
            _ => {}
        }
    }

    fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.data {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => {
                    self.shared.received.fetch_add(data.len(), Relaxed);
                    if let Some(exact) = &mut self.exact {
                        *exact = exact.saturating_sub(data.len() as u64);
                    }
                    // An error means that the stream is gone, which the next poll reports.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => {
                    // RFC 9113, section 8.1: once answered, the client need not send the rest.
                    let ended = error.reason() == Some(Reason::NO_ERROR);
                    return Poll::Ready((!ended).then_some(Err(Error::Transport(error.into()))));
                }
                None => self.data = false,
            }
        }
        match ready!(self.stream.poll_trailers(context)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(Some(Err(Error::Transport(error.into())))),
        }
    }

    pub fn is_end(&self) -> bool {
        self.stream.is_end_stream()
    }

    pub fn size_hint(&self) -> SizeHint {
        self.exact.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.set_awaited(false);
    }
}
