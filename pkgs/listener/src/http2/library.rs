//! h2, over one type of stream.
//!
//! What is generic is compiled in each crate that names its types. So the library is used here alone, by functions that are not:
//! else each service would compile all of it, once for each kind of socket.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::{self, Builder, SendResponse};
use h2::{Error, PingPong, Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

/// What h2 reads and writes.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// A connection to come.
pub type Handshake = Pin<Box<dyn Future<Output = Result<Box<dyn Connection>, Error>> + Send>>;

/// Begins a connection.
#[inline(never)]
pub fn handshake(builder: &Builder, io: Box<dyn ByteStream>) -> Handshake {
    let handshake = builder.handshake::<_, Bytes>(io);
    Box::pin(async move { Ok(Box::new(handshake.await?) as Box<dyn Connection>) })
}

/// A connection, in the words of h2.
pub trait Connection: Send {
    /// The next request; `None` at the end. Sends what there is to send.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Accepted, Error>>>;

    /// Ends once the requests are answered that have begun.
    fn graceful_shutdown(&mut self);

    /// Ends now.
    fn abrupt_shutdown(&mut self, reason: Reason);

    /// Whether a request is being answered.
    fn has_streams(&self) -> bool;

    /// Pings of ours, told once.
    fn ping_pong(&mut self) -> Option<PingPong>;

    /// How much the client may send on the connection before it is read.
    fn set_target_window_size(&mut self, bytes: u32);

    /// The same of each stream. Fails while a change before it is not yet acknowledged.
    fn set_initial_window_size(&mut self, bytes: u32) -> Result<(), Error>;
}

/// A request and what answers it.
pub struct Accepted {
    pub request: Request<RecvStream>,
    pub respond: Responder,
}

impl Connection for server::Connection<Box<dyn ByteStream>, Bytes> {
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Accepted, Error>>> {
        server::Connection::poll_accept(self, context)
            .map_ok(|(request, respond)| Accepted { request, respond: Responder(respond) })
    }

    fn graceful_shutdown(&mut self) {
        server::Connection::graceful_shutdown(self);
    }

    fn abrupt_shutdown(&mut self, reason: Reason) {
        server::Connection::abrupt_shutdown(self, reason);
    }

    fn has_streams(&self) -> bool {
        server::Connection::has_streams(self)
    }

    fn ping_pong(&mut self) -> Option<PingPong> {
        server::Connection::ping_pong(self)
    }

    fn set_target_window_size(&mut self, bytes: u32) {
        server::Connection::set_target_window_size(self, bytes);
    }

    fn set_initial_window_size(&mut self, bytes: u32) -> Result<(), Error> {
        server::Connection::set_initial_window_size(self, bytes)
    }
}

/// Answers a request.
pub struct Responder(SendResponse<Bytes>);

impl Responder {
    /// The stream that it came on.
    #[inline(never)]
    pub fn stream_id(&self) -> u32 {
        self.0.stream_id().into()
    }

    /// Sends an interim response; `None` where that fails.
    #[inline(never)]
    pub fn send_informational(&mut self, response: Response<()>) -> Option<()> {
        self.0.send_informational(response).ok()
    }

    /// Sends the head of the response, whose body then may be; `None` where that fails.
    #[inline(never)]
    pub fn send_response(&mut self, response: Response<()>, ends: bool) -> Option<Sending> {
        self.0.send_response(response, ends).ok().map(Sending)
    }

    /// Gives the stream up.
    #[inline(never)]
    pub fn send_reset(&mut self, reason: Reason) {
        self.0.send_reset(reason);
    }

    /// Whether the client has given it up.
    #[inline(never)]
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_reset(context).map(drop)
    }
}

/// Sends the body of a response.
pub struct Sending(SendStream<Bytes>);

impl Sending {
    /// Sends some, at most what there is room for; `None` where that fails.
    #[inline(never)]
    pub fn send_data(&mut self, data: Bytes, ends: bool) -> Option<()> {
        self.0.send_data(data, ends).ok()
    }

    /// Ends with fields; `None` where that fails.
    #[inline(never)]
    pub fn send_trailers(&mut self, fields: HeaderMap) -> Option<()> {
        self.0.send_trailers(fields).ok()
    }

    /// Asks for room.
    #[inline(never)]
    pub fn reserve_capacity(&mut self, bytes: usize) {
        self.0.reserve_capacity(bytes);
    }

    /// For how much there is room.
    #[inline(never)]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Whether there is more; `None` where the stream is gone.
    #[inline(never)]
    pub fn poll_capacity(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        self.0.poll_capacity(context).map(|room| room.and_then(Result::ok).map(drop))
    }

    /// Whether the client has given it up.
    #[inline(never)]
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_reset(context).map(drop)
    }
}
