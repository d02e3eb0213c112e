//! Answers to plain requests without a request object.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use request_head::Lines;
use service::request_id::RequestId;

use super::HttpService;
use crate::body::Body;
use crate::peer::Peer;

/// Answers requests in front of a service, without a request object, a map of fields or a task.
///
/// For HTTP/1.1, it is asked first about every request whose head is complete. For HTTP/2 and HTTP/3, it is asked about
/// requests that arrived whole and have no fields about their message. It sees them as HTTP/1.1 requests, and its
/// answer is turned into frames. What it declines goes to the service [beside](WithFastPath) it. It must not call
/// [`date`](crate::date), whose state [`Exchange`] borrows.
pub trait FastPath: Clone + Send + 'static {
    /// Appends the response to `out`: all of it, or only its head if the returned [`FastAnswer`] has the body. Returns
    /// `None` to decline, and then leaves `out` unchanged.
    ///
    /// So far, only the syntax of the fields was checked. [`request_head::Message`] tells how the body is framed and
    /// whether the client keeps the connection open. Answer only requests without a body, and decline malformed ones,
    /// so that they are refused as everywhere else. [`Exchange::connection`] tells what happens to the connection, and
    /// the head ends with [`Exchange::end`].
    fn answer(
        &mut self,
        head: &Lines<'_, '_>,
        exchange: &Exchange<'_>,
        out: &mut Vec<u8>,
    ) -> Option<FastAnswer>;
}

/// The answer of a [fast path](FastPath), besides the bytes that it appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastAnswer {
    /// What happens to the connection after it.
    pub connection: Connection,
    /// The body, if it was not appended: bytes that several answers share. HTTP/3 sends them without copying them.
    pub body: Bytes,
}

impl From<Connection> for FastAnswer {
    /// An answer of which every byte was appended.
    fn from(connection: Connection) -> Self {
        Self { connection, body: Bytes::new() }
    }
}

/// What happens to the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It waits for another request.
    Keep,
    /// It is closed, because the client asked for it or this side drains.
    Close,
}

/// What a response depends on besides its request.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The client.
    pub peer: &'a Peer,
    /// Whether this is the last answer, whatever the client asked for.
    pub(crate) closes: bool,
    pub(crate) more: &'a [u8],
    /// The date, and the empty line.
    pub(crate) end: &'a [u8],
}

impl Exchange<'_> {
    /// What happens to the connection after the answer. `keep_alive` says whether the client keeps it open.
    #[inline]
    pub fn connection(&self, keep_alive: bool) -> Connection {
        if keep_alive && !self.closes { Connection::Keep } else { Connection::Close }
    }

    /// The client's address for the request with this head, as a trusted proxy or else the connection reports it.
    pub fn client(&self, head: &Lines<'_, '_>) -> Option<IpAddr> {
        self.peer.client_of(head)
    }

    /// The id of the request with this head, from a trusted proxy or made here. An answer that is an error has to
    /// contain it as `x-request-id`.
    pub fn request_id(&self, head: &Lines<'_, '_>) -> RequestId {
        self.peer.given_id(head).unwrap_or_else(RequestId::generate)
    }

    /// Appends the end of every head: `connection` if it closes, `alt-svc`, the date and the empty line.
    #[inline]
    pub fn end(&self, out: &mut Vec<u8>, connection: Connection) {
        if connection == Connection::Close {
            out.extend_from_slice(b"connection: close\r\n");
        }
        // Without HTTP/3 there are none, and copying nothing is a call, too.
        if !self.more.is_empty() {
            out.extend_from_slice(self.more);
        }
        out.extend_from_slice(self.end);
    }
}

/// A service with a fast path for plain requests.
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
    // Boxed, since most requests have none, and most connections wait without one.
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
    ) -> Option<FastAnswer> {
        self.fast.answer(head, exchange, out)
    }
}
