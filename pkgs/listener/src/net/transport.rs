//! What a protocol is spoken on.

use std::io;
use std::os::fd::BorrowedFd;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_rustls::server::TlsStream;

use super::HandshakeStream;

/// A stream of bytes, both ways.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + Sized {
    /// What is written from here on is the last: the stream is shut down or dropped behind it, so that both may leave in one
    /// packet.
    fn expect_end(&mut self) {}

    /// The socket, where it is one of TCP.
    fn tcp(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The same alone.
    ///
    /// # Errors
    /// When it is none, or is not let go of.
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
