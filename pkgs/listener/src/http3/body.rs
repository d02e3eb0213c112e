//! Request bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use h3::server::RequestStream;
use http_body::{Frame, SizeHint};

use super::transport::RecvStream;
use crate::body::{Error, Expectation};

/// The part of a request's stream after its head.
pub(super) struct BodySource {
    stream: RequestStream<RecvStream, Bytes>,
    /// Data that was read to find out whether there is a body.
    first: Option<Bytes>,
    /// Bytes that `content-length` still announces.
    announced: Option<u64>,
    expectation: Expectation,
    /// Set if the body differs from what was announced.
    malformed: Arc<AtomicBool>,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Data,
    Trailers,
    End,
}

impl BodySource {
    /// The body of a request that announces `announced` bytes. None if it has already ended.
    ///
    /// # Errors
    /// When it cannot be received, or has ended and differs from what was announced.
    pub(super) async fn begin(
        mut stream: RequestStream<RecvStream, Bytes>,
        announced: Option<u64>,
        expectation: Expectation,
    ) -> Result<Option<Self>, Error> {
        // Most requests have no body, and say so in the packet with the head.
        let looked = std::future::poll_fn(|cx| Poll::Ready(poll_data(&mut stream, cx))).await;
        let (first, at) = match looked {
            Poll::Pending => (None, At::Data),
            Poll::Ready(data) => match data? {
                Some(data) => (Some(data), At::Data),
                None => (None, At::Trailers),
            },
        };
        let mut source = Self { stream, first, announced, expectation, malformed: Arc::default(), at };
        if at == At::Trailers {
            source.is_whole()?;
            let trailers = std::future::poll_fn(|cx| Poll::Ready(source.stream.poll_recv_trailers(cx))).await;
            if let Poll::Ready(Ok(None)) = trailers {
                return Ok(None);
            }
        }
        Ok(Some(source))
    }

    /// Becomes true if the body turns out to differ from what was announced.
    pub(super) fn malformed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.malformed)
    }

    /// Counts received bytes against what was announced.
    fn count(&mut self, data: &Bytes) -> Result<(), Error> {
        if let Some(announced) = &mut self.announced {
            match announced.checked_sub(data.len() as u64) {
                Some(left) => *announced = left,
                None => return Err(self.fail("it is longer than its content-length")),
            }
        }
        Ok(())
    }

    fn is_whole(&mut self) -> Result<(), Error> {
        match self.announced {
            Some(1..) => Err(self.fail("it is shorter than its content-length")),
            _ => Ok(()),
        }
    }

    /// RFC 9114, section 4.1.2: an error of the stream, not of the connection.
    fn fail(&mut self, why: &'static str) -> Error {
        self.malformed.store(true, Relaxed);
        self.at = At::End;
        self.stream.stop_sending(Code::H3_MESSAGE_ERROR);
        Error::Malformed(why)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.at == At::Data {
            let data = match self.first.take() {
                Some(first) => Some(first),
                None => match ready!(poll_data(&mut self.stream, cx)) {
                    Ok(data) => data,
                    Err(error) => {
                        self.at = At::End;
                        return Poll::Ready(Some(Err(error)));
                    }
                },
            };
            let counted = match &data {
                Some(data) => self.count(data),
                None => self.is_whole(),
            };
            match (counted, data) {
                (Err(error), _) => return Poll::Ready(Some(Err(error))),
                (Ok(()), Some(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                (Ok(()), None) => self.at = At::Trailers,
            }
        }
        if self.at == At::Trailers {
            let trailers = ready!(self.stream.poll_recv_trailers(cx));
            self.at = At::End;
            return match trailers {
                Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(None) => Poll::Ready(None),
                Err(error) => Poll::Ready(Some(Err(lost(error)))),
            };
        }
        Poll::Ready(None)
    }
}

impl http_body::Body for BodySource {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let source = self.get_mut();
        let polled = source.poll(cx);
        source.expectation.asked(polled.is_pending());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.at == At::End
    }

    fn size_hint(&self) -> SizeHint {
        match self.announced {
            Some(announced) => SizeHint::with_exact(announced),
            None => SizeHint::default(),
        }
    }
}

fn poll_data(
    stream: &mut RequestStream<RecvStream, Bytes>,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, Error>> {
    // The data is a single `Bytes`, so this only shares it.
    stream
        .poll_recv_data(cx)
        .map_ok(|data| data.map(|mut data| data.copy_to_bytes(data.remaining())))
        .map_err(lost)
}

fn lost(error: StreamError) -> Error {
    match error {
        StreamError::RemoteTerminate { .. } => Error::Incomplete,
        error => Error::Transport(Box::new(error)),
    }
}
