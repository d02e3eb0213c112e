//! A request body on an HTTP/2 stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Frame, SizeHint};

use super::Error;

/// The service's end.
pub struct Reader {
    stream: RecvStream,
    exact: Option<u64>,
    /// The bytes read on this connection, for its window.
    received: Arc<AtomicUsize>,
    data: bool,
}

impl Reader {
    /// The body on `stream`. h2 checks its announced length.
    pub fn new(stream: RecvStream, exact: Option<u64>, received: Arc<AtomicUsize>) -> Self {
        Self { stream, exact, received, data: true }
    }

    pub fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.data {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => {
                    self.received.fetch_add(data.len(), Relaxed);
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
