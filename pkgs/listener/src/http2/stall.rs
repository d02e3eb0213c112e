//! Whether a client takes what it is sent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is known of a connection's writing; clones share.
#[derive(Clone, Debug, Default)]
pub struct Stall(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the last write found no room.
    blocked: AtomicBool,
    /// How many have found some.
    writes: AtomicU64,
    /// How many had when it was last looked.
    seen: AtomicU64,
}

impl Stall {
    /// Whether nothing was taken since this was last asked, though there was something to take.
    pub fn is_over(&self) -> bool {
        let writes = self.0.writes.load(Relaxed);
        self.0.seen.swap(writes, Relaxed) == writes && self.0.blocked.load(Relaxed)
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        self.0.blocked.store(written.is_pending(), Relaxed);
        if written.is_ready() {
            self.0.writes.fetch_add(1, Relaxed);
        }
        written
    }
}

/// A socket whose writes are noted.
pub struct Watched<I> {
    io: I,
    stall: Stall,
}

impl<I> Watched<I> {
    pub fn new(io: I, stall: Stall) -> Self {
        Self { io, stall }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.stall.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.stall.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_stalls_when_it_takes_nothing_of_something() {
        let stall = Stall::default();
        assert!(!stall.is_over(), "there was nothing to take");
        let _ = stall.note(Poll::<()>::Pending);
        assert!(stall.is_over());
        let (_, _) = (stall.note(Poll::Ready(())), stall.note(Poll::<()>::Pending));
        assert!(!stall.is_over(), "it took a piece");
        assert!(stall.is_over());
    }
}
