//! Gathers what h2 writes in one round of its connection's task, so that it leaves in one call, in as few TLS records as
//! possible.
//!
//! h2 flushes after each DATA frame of more than 256 bytes, so eight answers of 1 KB used to take eight calls. A long
//! frame exceeds a TLS record by its head, so it used to take a call and two records, one of them of nine bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{Head, RST_STREAM};
use crate::http1::buffer_pool::Output;
use crate::limits::ResponseReservation;

/// The most bytes that are gathered: four of the longest frames that clients allow unless they say otherwise (RFC 9113,
/// section 4.2: 16 KiB and a head of nine bytes), and short ones beside them.
pub const MOST: usize = 66 * 1024;

/// What each connection may gather. More than that is reserved first, as a part of what clients have yet to take in sum.
/// No more is gathered where there is no such room, or for a client that was slow to take what was last gathered for it.
const OWN: usize = 16 * 1024;

/// The state that the connection's task shares with its [`CorkedIo`]. Without a task that calls
/// [`hold`](Self::hold), nothing is gathered.
#[derive(Clone, Debug, Default)]
pub struct Cork(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether writes are gathered, and flushing waits.
    holds: AtomicBool,
    /// Whether something is gathered.
    is_filled: AtomicBool,
}

impl Cork {
    /// A round starts: from now on, writes are gathered.
    pub fn hold(&self) {
        self.0.holds.store(true, Relaxed);
    }

    /// A round is over: the next flush sends everything. Returns whether one is needed.
    pub fn release(&self) -> bool {
        self.0.holds.swap(false, Relaxed) && self.is_filled()
    }

    /// Whether writes are gathered.
    fn holds(&self) -> bool {
        self.0.holds.load(Relaxed)
    }

    /// Whether something is gathered that the client has yet to take.
    pub fn is_filled(&self) -> bool {
        self.0.is_filled.load(Relaxed)
    }
}

/// A stream that gathers the writes of a round.
pub struct CorkedIo<I> {
    io: I,
    cork: Cork,
    gathered: Output,
    /// How much may be gathered now.
    most: usize,
    /// Whether the client is slow to take what is gathered.
    is_slow: bool,
    /// The reservation for what is gathered beyond [`OWN`], if that is reserved.
    held: ResponseReservation,
}

/// The same stream for writes that are complete, and need not wait for others.
pub struct Uncorked<'a, I>(&'a mut CorkedIo<I>);

impl<I> CorkedIo<I> {
    /// `held` is empty.
    pub fn new(io: I, cork: Cork, held: ResponseReservation) -> Self {
        Self { io, cork, gathered: Output::default(), most: MOST, is_slow: false, held }
    }

    /// The stream for writes that are not gathered.
    pub fn uncorked(&mut self) -> Uncorked<'_, I> {
        Uncorked(self)
    }
}

impl<I: AsyncWrite + Unpin> CorkedIo<I> {
    /// Writes everything that is gathered.
    #[inline]
    fn poll_gathered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.gathered.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let written = self.gathered.poll_write(&mut self.io, context, |_| ());
        if written.is_pending() {
            self.is_slow = true;
            if self.held.is_empty() {
                self.gathered.shrink_to(OWN);
            }
            return Poll::Pending;
        }
        ready!(written)?;
        self.most = if std::mem::take(&mut self.is_slow) { OWN } else { MOST };
        if !self.held.is_empty() {
            self.held.resize(0);
        }
        self.cork.0.is_filled.store(false, Relaxed);
        Poll::Ready(Ok(()))
    }

    /// Whether this many bytes may be gathered in all.
    fn has_room(&mut self, bytes: usize) -> bool {
        if bytes <= OWN || bytes > self.most || !self.held.is_empty() {
            return bytes <= self.most;
        }
        let has_room = self.held.resize((MOST - OWN) as u64);
        if !has_room {
            self.held.resize(0);
            self.most = OWN;
        }
        has_room
    }

    /// Gathers these pieces, if need be after what is gathered is written. Returns whether there is room for them.
    fn poll_gather<'p>(
        &mut self,
        context: &mut Context<'_>,
        pieces: impl Iterator<Item = &'p [u8]> + Clone,
        bytes: usize,
    ) -> Poll<io::Result<bool>> {
        // curl 7.88 misses an answer to which it sends a body if the stream's reset comes in the same record.
        let resets = pieces
            .clone()
            .find(|piece| !piece.is_empty())
            .and_then(Head::first)
            .is_some_and(|head| head.kind == RST_STREAM);
        if resets || self.gathered.len() + bytes > self.most {
            ready!(self.poll_gathered(context))?;
        }
        let all = self.gathered.len() + bytes;
        if !self.has_room(all) {
            return Poll::Ready(Ok(false));
        }
        if bytes > 0 {
            if all > OWN {
                self.gathered.reserve(MOST);
            }
            let buffer = self.gathered.buffer();
            pieces.for_each(|piece| buffer.extend_from_slice(piece));
            self.cork.0.is_filled.store(true, Relaxed);
        }
        Poll::Ready(Ok(true))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for CorkedIo<I> {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for CorkedIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let gathers = self.cork.holds();
        if gathers && ready!(self.poll_gather(context, std::iter::once(bytes), bytes.len()))? {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.uncorked()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        let gathers = self.cork.holds();
        if gathers && ready!(self.poll_gather(context, pieces.iter().map(|piece| &**piece), bytes))? {
            return Poll::Ready(Ok(bytes));
        }
        Pin::new(&mut self.uncorked()).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// Does nothing if something is gathered and the round is not over.
    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gathered.is_empty() && self.cork.holds() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.uncorked()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_gathered(context))?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Uncorked<'_, I> {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.0.poll_gathered(context))?;
        Pin::new(&mut self.0.io).poll_write(context, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.0.poll_gathered(context))?;
        Pin::new(&mut self.0.io).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.io.is_write_vectored()
    }

    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_gathered(context))?;
        Pin::new(&mut self.0.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::config::Limits;
    use crate::limits::ResponseBudget;

    /// A stream that takes only so much, and remembers each call's bytes.
    #[derive(Default)]
    struct Wire {
        calls: Vec<Vec<u8>>,
        room: usize,
        flushes: usize,
    }

    impl AsyncWrite for Wire {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Poll::Pending;
            }
            self.room -= count;
            self.calls.push(bytes[..count].to_vec());
            Poll::Ready(Ok(count))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    struct Line {
        io: CorkedIo<Wire>,
        cork: Cork,
        answers: Arc<ResponseBudget>,
    }

    impl Line {
        fn new(room: usize) -> Self {
            let (cork, wire) = (Cork::default(), Wire { room, ..Wire::default() });
            let answers =
                ResponseBudget::new(&Limits { answer_bytes_total: MOST as u64, ..Limits::default() });
            Self { io: CorkedIo::new(wire, cork.clone(), answers.held()), cork, answers }
        }

        /// The number of bytes taken; none if the stream is full.
        fn write(&mut self, bytes: &[u8]) -> Option<usize> {
            match Pin::new(&mut self.io).poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
                Poll::Ready(taken) => Some(taken.expect("it works")),
                Poll::Pending => None,
            }
        }

        fn flush(&mut self) -> bool {
            Pin::new(&mut self.io).poll_flush(&mut Context::from_waker(Waker::noop())).is_ready()
        }

        /// What was written since the last call, by call.
        fn calls(&mut self) -> Vec<Vec<u8>> {
            std::mem::take(&mut self.io.io.calls)
        }
    }

    #[test]
    fn writes_of_a_round_leave_together() {
        let mut line = Line::new(usize::MAX);
        // Before the first round, as in h2's handshake.
        assert_eq!(line.write(b"settings"), Some(8));
        assert!(line.flush());
        assert_eq!((line.calls(), line.io.io.flushes), (vec![b"settings".to_vec()], 1));
        line.cork.hold();
        for bytes in [&b"a"[..], b"bc", b""] {
            assert_eq!(line.write(bytes), Some(bytes.len()));
            assert!(line.flush());
        }
        assert_eq!((line.calls(), line.io.io.flushes), (vec![], 1));
        assert!(line.cork.is_filled() && line.cork.release());
        assert!(line.flush());
        assert_eq!((line.calls(), line.io.io.flushes), (vec![b"abc".to_vec()], 2));
        assert!(!line.cork.is_filled() && !line.cork.release());
        // With nothing gathered, a flush is a flush.
        line.cork.hold();
        assert!(line.flush() && !line.cork.release());
        assert_eq!(line.io.io.flushes, 3);
    }

    #[test]
    fn a_reset_leaves_after_what_is_before_it() {
        let mut line = Line::new(usize::MAX);
        line.cork.hold();
        let (data, reset) = (b"\0\0\x01\0\x01\0\0\0\x01x", b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\0");
        for bytes in [&data[..], data, reset] {
            assert_eq!(line.write(bytes), Some(bytes.len()));
        }
        assert_eq!(line.calls(), [data.repeat(2)]);
        assert!(line.cork.release() && line.flush());
        assert_eq!(line.calls(), [reset.to_vec()]);
    }

    #[test]
    fn what_is_long_follows_what_is_gathered_without_a_copy() {
        let mut line = Line::new(usize::MAX);
        line.cork.hold();
        let (long, third) = (vec![b'x'; MOST + 1], vec![b'y'; MOST / 3]);
        assert_eq!((line.write(b"a"), line.write(&long)), (Some(1), Some(MOST + 1)));
        assert_eq!(line.calls(), [b"a".to_vec(), long]);
        for _ in 0..4 {
            assert_eq!(line.write(&third), Some(MOST / 3));
        }
        assert_eq!(line.calls(), [third.repeat(3)], "there is room for three");
        let context = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut line.io.uncorked()).poll_write(context, b"now").is_ready());
        assert_eq!(line.calls(), [third, b"now".to_vec()]);
        assert!(!line.cork.release());
    }

    #[test]
    fn four_of_the_longest_frames_leave_together() {
        let mut line = Line::new(usize::MAX);
        line.cork.hold();
        let frame = vec![b'x'; 9 + (16 << 10)];
        for _ in 0..4 {
            assert_eq!(line.write(&frame), Some(frame.len()));
        }
        assert!(line.cork.release() && line.flush());
        assert_eq!(line.calls(), [frame.repeat(4)]);
    }

    #[test]
    fn less_is_gathered_for_a_client_that_was_slow() {
        let mut line = Line::new(3);
        line.cork.hold();
        let most = vec![b'x'; MOST];
        assert_eq!((line.write(&most), line.write(b"ab")), (Some(MOST), None));
        assert!(line.cork.release() && !line.flush() && line.cork.is_filled());
        assert_eq!(line.answers.bytes(), (MOST - OWN) as u64);
        line.io.io.room = usize::MAX;
        assert!(line.flush() && !line.cork.is_filled());
        assert_eq!((line.calls().concat(), line.answers.bytes()), (most, 0));
        // What is longer than what may be gathered now is not, and what was taken at once makes up for it.
        let long = vec![b'y'; OWN + 1];
        for gathers in [false, true] {
            line.cork.hold();
            assert_eq!(line.write(&long), Some(long.len()));
            assert_eq!(line.calls().is_empty(), gathers);
            assert_eq!(line.write(b"short"), Some(5));
            assert!(line.cork.release() && line.flush());
            line.calls();
        }
    }

    #[test]
    fn a_connection_gathers_its_own_if_clients_have_too_much_to_take() {
        let mut line = Line::new(usize::MAX);
        let mut other = line.answers.held();
        assert!(other.resize(MOST as u64));
        let (own, long) = (vec![b'x'; OWN], vec![b'y'; OWN + 1]);
        for _ in 0..3 {
            line.cork.hold();
            assert_eq!((line.write(&long), line.write(&own)), (Some(OWN + 1), Some(OWN)));
            assert_eq!(line.calls(), std::slice::from_ref(&long));
            assert_eq!(line.write(b"a"), Some(1));
            assert_eq!(line.calls(), std::slice::from_ref(&own));
            assert_eq!(line.answers.bytes(), MOST as u64);
            assert!(line.cork.release() && line.flush());
            assert_eq!(line.calls(), [b"a".to_vec()]);
        }
        other.resize(0);
        line.cork.hold();
        assert_eq!((line.write(&long), line.write(&own)), (Some(OWN + 1), Some(OWN)));
        assert!(line.calls().is_empty());
        drop(line.io);
        assert_eq!(line.answers.bytes(), 0);
    }
}
