//! Reading and writing a TCP socket by system calls of rustix instead of libc's, whose wrappers make each a point
//! where a thread may be cancelled. Nobody here cancels threads, and it costs two locked instructions a call.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::writev;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A TCP socket.
pub struct Tcp(pub TcpStream);

impl Tcp {
    /// Runs `call`, which says what came of it and whether the socket has no more for now, until it would not
    /// block.
    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        interest: Interest,
        mut call: impl FnMut(&TcpStream) -> io::Result<(T, bool)>,
    ) -> Poll<io::Result<T>> {
        loop {
            if interest.is_readable() {
                ready!(self.0.poll_read_ready(context))?;
            } else {
                ready!(self.0.poll_write_ready(context))?;
            }
            let mut done = None;
            let result = self.0.try_io(interest, || {
                let (value, exhausted) = call(&self.0)?;
                done = Some(value);
                // A socket that gave less than there was room for is empty. Told so, the runtime waits for the
                // next event, which spares a call that would find nothing (epoll(7), on edge-triggered use).
                if exhausted { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (done, result) {
                (Some(value), _) => return Poll::Ready(Ok(value)),
                (None, Err(error)) if error.kind() != ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                (None, _) => {}
            }
        }
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        let count = ready!(self.poll(context, Interest::READABLE, |stream| {
            let (_, count) = recv(stream, buffer.initialize_unfilled(), RecvFlags::empty())?;
            Ok((count, 0 < count && count < room))
        }))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(context, Interest::WRITABLE, |stream| {
            let count = send(stream, bytes, SendFlags::NOSIGNAL)?;
            Ok((count, 0 < count && count < bytes.len()))
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.poll(context, Interest::WRITABLE, |stream| {
            let count = writev(stream, pieces)?;
            Ok((count, 0 < count && count < length))
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
