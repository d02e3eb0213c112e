//! The byte stream below a protocol.

use std::io;
use std::os::fd::BorrowedFd;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_rustls::server::TlsStream;

use super::HandshakeStream;

/// A byte stream in both directions.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + Sized {
    /// The next write is the last: the stream is shut down or dropped after it, so that data and end can leave in one
    /// packet.
    fn expect_end(&mut self) {}

    /// The socket, if it is TCP.
    fn tcp(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The bare socket.
    ///
    /// # Errors
    /// When it is not TCP, or cannot be released.
    fn into_tcp(self) -> io::Result<std::net::TcpStream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Transport for UnixStream {}

impl<S: Transport> Transport for HandshakeStream<S> {
    fn expect_end(&mut self) {
        self.get_mut().expect_end();
    }
}

impl<S: Transport> Transport for Box<TlsStream<S>> {
    fn expect_end(&mut self) {
        self.get_mut().0.expect_end();
    }
}
