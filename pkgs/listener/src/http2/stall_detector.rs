//! A connection's socket that detects a client which takes nothing (`StallDetector`). At the end, it lingers: it
//! receives what the client still sends, so that the client can read the last answer.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::MIN_PROGRESS_BYTES;

/// How many bytes a lingering connection drops at a time.
const DROPPED_BYTES: usize = 8 * 1024;

/// How many bytes it drops in total: what may have been on its way when the client was told. Clients that send more get
/// a reset.
const MOST_DROPPED_BYTES: usize = 1 << 20;

/// The state of a connection's writes. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StallDetector(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the last write found no room in the socket.
    blocked: AtomicBool,
    /// The number of bytes that the socket took.
    taken: AtomicU64,
    /// That number at the last check.
    seen: AtomicU64,
    /// Whether everything was said, and the connection lingers.
    lingers: AtomicBool,
}

impl StallDetector {
    /// Whether next to nothing was taken since the last call, although there was something to take.
    pub fn is_over(&self) -> bool {
        let taken = self.0.taken.load(Relaxed);
        taken - self.0.seen.swap(taken, Relaxed) < MIN_PROGRESS_BYTES as u64 && self.0.blocked.load(Relaxed)
    }

    /// Whether everything was said, and the connection lingers.
    pub fn is_lingering(&self) -> bool {
        self.0.lingers.load(Relaxed)
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.0.blocked.store(written.is_pending(), Relaxed);
        if let Poll::Ready(Ok(bytes)) = written {
            self.0.taken.fetch_add(bytes as u64, Relaxed);
        }
        written
    }
}

/// A socket that records its writes.
pub struct WatchedIo<I> {
    io: I,
    stall: StallDetector,
    /// Bytes that came while lingering.
    dropped: usize,
}

impl<I> WatchedIo<I> {
    pub fn new(io: I, stall: StallDetector) -> Self {
        Self { io, stall, dropped: 0 }
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

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WatchedIo<I> {
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

    /// Announces the end, and drops what the client still sends so that it reads the reason. Closing a socket with
    /// unread bytes resets it, and the last answer may be lost.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.stall.is_lingering() {
            ready!(Pin::new(&mut self.io).poll_shutdown(context))?;
            self.stall.0.lingers.store(true, Relaxed);
        }
        let mut space = [MaybeUninit::uninit(); DROPPED_BYTES];
        while self.dropped < MOST_DROPPED_BYTES {
            let mut dropped = ReadBuf::uninit(&mut space);
            let read = ready!(Pin::new(&mut self.io).poll_read(context, &mut dropped));
            if read.is_err() || dropped.filled().is_empty() {
                break;
            }
            self.dropped += dropped.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

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

    #[test]
    fn a_client_that_still_sends_at_the_end_is_heard_out() {
        let (io, mut client) = tokio::io::duplex(64);
        let stall = StallDetector::default();
        let mut io = WatchedIo::new(io, stall.clone());
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(
                Pin::new(&mut client).poll_write(&mut context, &[0; 64]).is_ready(),
                "there is room again"
            );
            assert!(Pin::new(&mut io).poll_shutdown(&mut context).is_pending());
            assert!(stall.is_lingering());
        }
        let mut space = [0; 8];
        let mut end = ReadBuf::new(&mut space);
        assert!(
            Pin::new(&mut client).poll_read(&mut context, &mut end).is_ready() && end.filled().is_empty()
        );
        drop(client);
        assert!(Pin::new(&mut io).poll_shutdown(&mut context).is_ready());
    }
}
