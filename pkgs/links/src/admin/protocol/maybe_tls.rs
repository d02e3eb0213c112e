//! What a connection comes by: in the clear, or by TLS.
//!
//! The handshake is a part of reading, so that it is under the same deadlines, and makes room for others as well, as a
//! request that does not come.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// A stream, of which nothing is known yet where it is one of TLS.
pub(in crate::admin) enum MaybeTls<S> {
    /// In the clear.
    Plain(S),
    /// The client is yet to prove that it speaks TLS.
    Handshake(Box<Accept<S>>),
    /// By TLS.
    Tls(Box<TlsStream<S>>),
    /// It does not.
    Failed,
}

impl<S: AsyncRead + AsyncWrite + Unpin> MaybeTls<S> {
    /// By TLS where there is what accepts it.
    pub(in crate::admin) fn new(stream: S, tls: Option<&TlsAcceptor>) -> Self {
        match tls {
            None => Self::Plain(stream),
            Some(tls) => Self::Handshake(Box::new(tls.accept(stream))),
        }
    }
}

/// Said where something is to be written to whom has not proved yet that it could read it.
fn too_early() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for MaybeTls<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut *self {
                Self::Plain(stream) => return Pin::new(stream).poll_read(context, buffer),
                Self::Tls(stream) => return Pin::new(stream).poll_read(context, buffer),
                Self::Failed => return Poll::Ready(Err(too_early())),
                Self::Handshake(accept) => match ready!(Pin::new(accept).poll(context)) {
                    Ok(stream) => *self = Self::Tls(Box::new(stream)),
                    Err(error) => {
                        *self = Self::Failed;
                        return Poll::Ready(Err(error));
                    }
                },
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for MaybeTls<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Handshake(_) | Self::Failed => Poll::Ready(Err(too_early())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
            Self::Handshake(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            // Nothing has been said that would have to arrive.
            Self::Handshake(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }
}
