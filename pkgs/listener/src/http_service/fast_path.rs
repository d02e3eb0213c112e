//! Answers to plain requests before anything is made of them.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use request_head::Lines;
use service::request_id::RequestId;

use super::HttpService;
use crate::body::Body;
use crate::peer::Peer;

/// Answers beside a service what needs no request object, no map of fields and no task.
///
/// It is asked first for each request of HTTP/1.1 whose head is whole, and for those of HTTP/2 and HTTP/3 that have come whole
/// and say nothing of their message, as if they had come by HTTP/1.1: what it answers is made frames of. What it declines comes
/// to the service it stands [beside](WithFastPath).
pub trait FastPath: Clone + Send + 'static {
    /// Appends the whole response to `out`, or declines by `None` and leaves `out` as it was.
    ///
    /// Of the fields nobody has looked at more than their syntax: [`request_head::Message`] tells how the body is
    /// framed and whether the client keeps the connection. Only a request without a body may be answered, and what is
    /// malformed is to be declined, for then it is refused as elsewhere. [`Exchange::connection`] tells how the connection
    /// goes on, and the head ends with [`Exchange::end`].
    fn answer(
        &mut self,
        head: &Lines<'_, '_>,
        exchange: &Exchange<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Connection>;
}

/// How the connection goes on after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It waits for another request.
    Keep,
    /// It is closed: the client asked for it, or this side drains.
    Close,
}

/// What a response depends on beside its request.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// Who asks.
    pub peer: &'a Peer,
    /// Whether this is to be the last answer, whatever the client asked for.
    pub(crate) closes: bool,
    pub(crate) more: &'a [u8],
    /// The date, and the empty line.
    pub(crate) end: &'a [u8],
}

impl Exchange<'_> {
    /// How the connection goes on after the answer to a client that keeps it, or does not.
    #[inline]
    pub fn connection(&self, keep_alive: bool) -> Connection {
        if keep_alive && !self.closes { Connection::Keep } else { Connection::Close }
    }

    /// Where the client of the request of this head is: what a trusted proxy says, and otherwise the connection.
    pub fn client(&self, head: &Lines<'_, '_>) -> Option<IpAddr> {
        self.peer.client_of(head)
    }

    /// The id of the request of this head, for an answer that is an error, in whose head it is to be as `x-request-id`: as
    /// trusted proxies tell it, or made here.
    pub fn request_id(&self, head: &Lines<'_, '_>) -> RequestId {
        self.peer.given_id(head).unwrap_or_else(RequestId::generate)
    }

    /// Appends what every head ends with: `connection` where it closes, `alt-svc`, the date and the empty line.
    #[inline]
    pub fn end(&self, out: &mut Vec<u8>, connection: Connection) {
        if connection == Connection::Close {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(self.more);
        out.extend_from_slice(self.end);
    }
}

/// A service and what answers its plain requests.
#[derive(Clone, Debug)]
pub struct WithFastPath<S, F> {
    /// Answers what the fast path declines.
    pub service: S,
    /// Is asked first.
    pub fast: F,
}

impl<S: HttpService, F: FastPath> HttpService for WithFastPath<S, F> {
    type ResponseBody = S::ResponseBody;
    type Error = S::Error;
    type Future = S::Future;
    // Most requests have none, and most connections wait: these have no room for one.
    type Exchange<E: Future + Send> = Pin<Box<E>>;

    const FAST: bool = true;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<Body>) -> S::Future {
        self.service.call(request)
    }

    #[inline]
    fn exchange<E: Future + Send>(exchange: E) -> Pin<Box<E>> {
        Box::pin(exchange)
    }

    #[inline]
    fn fast(
        &mut self,
        head: &Lines<'_, '_>,
        exchange: &Exchange<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Connection> {
        self.fast.answer(head, exchange, out)
    }
}
