//! Whether a client takes what it is sent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::MIN_PROGRESS_BYTES;

/// What is known of a connection's writing; clones share.
#[derive(Clone, Debug, Default)]
pub struct StallDetector(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the last write found no room.
    blocked: AtomicBool,
    /// Bytes for which there was some.
    taken: AtomicU64,
    /// For how many there had been when it was last looked.
    seen: AtomicU64,
}

impl StallDetector {
    /// Whether next to nothing was taken since this was last asked, though there was something to take.
    pub fn is_over(&self) -> bool {
        let taken = self.0.taken.load(Relaxed);
        taken - self.0.seen.swap(taken, Relaxed) < MIN_PROGRESS_BYTES as u64 && self.0.blocked.load(Relaxed)
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.0.blocked.store(written.is_pending(), Relaxed);
        if let Poll::Ready(Ok(bytes)) = written {
            self.0.taken.fetch_add(bytes as u64, Relaxed);
        }
        written
    }
}

/// A socket whose writes are noted.
pub struct WatchedIo<I> {
    io: I,
    stall: StallDetector,
}

impl<I> WatchedIo<I> {
    pub fn new(io: I, stall: StallDetector) -> Self {
        Self { io, stall }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for WatchedIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for WatchedIo<I> {
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
        let stall = StallDetector::default();
        assert!(!stall.is_over(), "there was nothing to take");
        let took = |bytes| drop((stall.note(Poll::Ready(Ok(bytes))), stall.note(Poll::Pending)));
        took(0);
        assert!(stall.is_over());
        took(MIN_PROGRESS_BYTES);
        assert!(!stall.is_over(), "it took a piece");
        took(MIN_PROGRESS_BYTES - 1);
        assert!(stall.is_over(), "a drop is no piece");
    }
}
