//! The service that a listener serves.

mod boxed;
mod fast_path;

pub(crate) use boxed::BoxedService;
pub use fast_path::{Connection, Exchange, FastAnswer, FastPath, WithFastPath};

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use request_head::Lines;

use crate::body::Body;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The service that a listener serves: a cheap-to-clone [`tower_service::Service`] of requests. Every such service
/// implements this trait, and so does [`WithFastPath`].
///
/// It is cloned once per HTTP/1.1 connection, and once per stream of HTTP/2 and HTTP/3. An error of the service closes
/// the connection, or resets the stream.
pub trait HttpService: Clone + Send + 'static {
    /// The body of its responses.
    type ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    /// Why there is no response.
    type Error: Into<BoxError>;
    /// The future of a response.
    type Future: Future<Output = Result<Response<Self::ResponseBody>, Self::Error>> + Send + 'static;

    /// Whether it accepts a request now.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;

    /// Answers a request.
    fn call(&mut self, request: Request<Body>) -> Self::Future;

    /// Whether there is a [fast path](crate::FastPath). Without one, none of its code is compiled.
    const FAST: bool = false;

    /// Where the state of an HTTP/1.1 exchange is: in the connection's own memory, or boxed.
    #[doc(hidden)]
    type Exchange<E: Future + Send>: Future<Output = E::Output> + Send;

    /// Places the state of an exchange there.
    #[doc(hidden)]
    fn exchange<E: Future + Send>(exchange: E) -> Self::Exchange<E>;

    /// Answers a plain request, or declines; see [`FastPath::answer`].
    #[inline]
    fn fast(&mut self, _: &Lines<'_, '_>, _: &Exchange<'_>, _: &mut Vec<u8>) -> Option<FastAnswer> {
        None
    }
}

impl<S, B> HttpService for S
where
    S: tower_service::Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type ResponseBody = B;
    type Error = S::Error;
    type Future = S::Future;
    // This saves an allocation per request.
    type Exchange<E: Future + Send> = E;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        tower_service::Service::poll_ready(self, context)
    }

    #[inline]
    fn call(&mut self, request: Request<Body>) -> S::Future {
        tower_service::Service::call(self, request)
    }

    #[inline]
    fn exchange<E: Future + Send>(exchange: E) -> E {
        exchange
    }
}
