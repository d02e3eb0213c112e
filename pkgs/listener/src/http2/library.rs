//! h2 over a single type of stream.
//!
//! Generic code is compiled in each crate that names its types. So h2 is used only here, by functions that are not
//! generic; otherwise each service would compile all of it, once per kind of socket.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::{self, Builder, SendResponse};
use h2::{Error, PingPong, Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

/// What h2 reads from and writes to.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// The future of a connection.
pub type Handshake = Pin<Box<dyn Future<Output = Result<Box<dyn Connection>, Error>> + Send>>;

/// Begins a connection.
#[inline(never)]
pub fn handshake(builder: &Builder, io: Box<dyn ByteStream>) -> Handshake {
    let handshake = builder.handshake::<_, Bytes>(io);
    Box::pin(async move { Ok(Box::new(handshake.await?) as Box<dyn Connection>) })
}

/// The methods of an h2 connection.
pub trait Connection: Send {
    /// The next request; `None` at the end. Also sends pending output.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Accepted, Error>>>;

    /// Ends the connection after the running requests.
    fn graceful_shutdown(&mut self);

    /// Ends the connection now.
    fn abrupt_shutdown(&mut self, reason: Reason);

    /// Whether requests are running.
    fn has_streams(&self) -> bool;

    /// Our pings, returned once.
    fn ping_pong(&mut self) -> Option<PingPong>;

    /// Sets how much the client may send on the connection before it is read.
    fn set_target_window_size(&mut self, bytes: u32);

    /// The same for each stream. Fails while an earlier change is not yet acknowledged.
    fn set_initial_window_size(&mut self, bytes: u32) -> Result<(), Error>;
}

/// A request and its responder.
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
    /// The stream of the request.
    #[inline(never)]
    pub fn stream_id(&self) -> u32 {
        self.0.stream_id().into()
    }

    /// Sends an interim response; `None` if that fails.
    #[inline(never)]
    pub fn send_informational(&mut self, response: Response<()>) -> Option<()> {
        self.0.send_informational(response).ok()
    }

    /// Sends the response's head, after which a body may follow; `None` if that fails.
    #[inline(never)]
    pub fn send_response(&mut self, response: Response<()>, ends: bool) -> Option<Sending> {
        self.0.send_response(response, ends).ok().map(Sending)
    }

    /// Resets the stream.
    #[inline(never)]
    pub fn send_reset(&mut self, reason: Reason) {
        self.0.send_reset(reason);
    }

    /// Whether the client has reset it.
    #[inline(never)]
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_reset(context).map(drop)
    }
}

/// Sends the body of a response.
pub struct Sending(SendStream<Bytes>);

impl Sending {
    /// Sends data, at most as much as there is room for; `None` if that fails.
    #[inline(never)]
    pub fn send_data(&mut self, data: Bytes, ends: bool) -> Option<()> {
        self.0.send_data(data, ends).ok()
    }

    /// Ends with trailers; `None` if that fails.
    #[inline(never)]
    pub fn send_trailers(&mut self, fields: HeaderMap) -> Option<()> {
        self.0.send_trailers(fields).ok()
    }

    /// Requests room.
    #[inline(never)]
    pub fn reserve_capacity(&mut self, bytes: usize) {
        self.0.reserve_capacity(bytes);
    }

    /// The available room.
    #[inline(never)]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Whether there is more room; `None` if the stream is gone.
    #[inline(never)]
    pub fn poll_capacity(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        self.0.poll_capacity(context).map(|room| room.and_then(Result::ok).map(drop))
    }

    /// Whether the client has reset the stream.
    #[inline(never)]
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_reset(context).map(drop)
    }
}
