//! Sends several datagrams of one connection in one system call.
//!
//! The kernel accepts up to 64 datagrams in one call (UDP_SEGMENT, udp(7)), but quinn fills at most ten at a time. If
//! it fills all ten, more usually follow. So they are kept for a moment, until the largest possible call is full, or
//! the connection has no more.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// How many datagrams quinn sends in one call if it has enough (its `MAX_TRANSMIT_SEGMENTS`). If that ever changes,
/// nothing is kept.
const FULL: usize = 10;

/// The most bytes of one call: an IP packet's payload, less IP's and UDP's headers (RFC 768, RFC 8200).
const MOST_BYTES: usize = 65_535 - 40 - 8;

/// How many connections may have datagrams kept at once: one MiB of buffers.
const CONNECTIONS: usize = 16;

/// A socket that gathers datagrams.
pub(super) struct GsoSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    batches: Vec<GsoBatch>,
    /// Buffers for reuse.
    buffers: Vec<Vec<u8>>,
    /// The task that sends batches to which nothing was added.
    sender: Option<Waker>,
}

/// Datagrams of one size for one address.
struct GsoBatch {
    destination: SocketAddr,
    source: Option<IpAddr>,
    ecn: Option<EcnCodepoint>,
    segment: usize,
    contents: Vec<u8>,
    /// Whether something was added since the sender's last look.
    grows: bool,
}

impl GsoSocket {
    /// Gathers what is sent through `socket`.
    pub(super) fn new(socket: Arc<dyn AsyncUdpSocket>) -> Arc<Self> {
        Arc::new(Self { socket, kept: Mutex::default() })
    }

    /// Sends batches to which nothing was added for a round of the runtime; never ends.
    pub(super) async fn send_rest(self: Arc<Self>) {
        let mut poller = Arc::clone(&self.socket).create_io_poller();
        poll_fn(|cx| self.poll_rest(poller.as_mut(), cx)).await
    }

    fn poll_rest(&self, mut poller: Pin<&mut dyn UdpPoller>, cx: &mut Context<'_>) -> Poll<()> {
        while self.send_ungrown(cx.waker()).is_err() {
            // The endpoint notices if the socket has failed.
            let _ = ready!(poller.as_mut().poll_writable(cx));
        }
        Poll::Pending
    }

    /// Sends batches to which nothing was added since the last call. `sender` looks again in the next round if any are
    /// left, otherwise once there are new ones.
    fn send_ungrown(&self, sender: &Waker) -> io::Result<()> {
        let mut kept = self.kept();
        for at in (0..kept.batches.len()).rev() {
            if !std::mem::take(&mut kept.batches[at].grows) {
                self.depart(&mut kept, at)?;
            }
        }
        if kept.batches.is_empty() {
            kept.sender = Some(sender.clone());
        } else {
            sender.wake_by_ref();
        }
        Ok(())
    }

    /// Sends a batch, or keeps it if the socket does not take it.
    fn depart(&self, kept: &mut Kept, at: usize) -> io::Result<()> {
        let GsoBatch { destination, source, ecn, segment, contents, .. } = &kept.batches[at];
        let segment_size = (contents.len() > *segment).then_some(*segment);
        let transmit =
            Transmit { destination: *destination, ecn: *ecn, contents, segment_size, src_ip: *source };
        self.socket.try_send(&transmit)?;
        let mut contents = kept.batches.swap_remove(at).contents;
        contents.clear();
        kept.buffers.push(contents);
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GsoBatch {
    /// Whether these datagrams may follow: only the last of a batch may be shorter, and none longer.
    fn takes(&self, transmit: &Transmit<'_>, segments: usize) -> bool {
        let length = self.contents.len() + transmit.contents.len();
        self.ecn == transmit.ecn
            && transmit
                .segment_size
                .map_or(transmit.contents.len() <= self.segment, |size| size == self.segment)
            && self.contents.len().is_multiple_of(self.segment)
            && length <= MOST_BYTES
            && length.div_ceil(self.segment) <= segments
    }
}

impl AsyncUdpSocket for GsoSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let Transmit { destination, ecn, contents, segment_size, src_ip: source } = *transmit;
        let segments = self.socket.max_transmit_segments();
        let full = segment_size.is_some_and(|size| contents.len() == FULL * size);
        let mut kept = self.kept();
        let same = |batch: &GsoBatch| batch.destination == destination && batch.source == source;
        if let Some(at) = kept.batches.iter().position(same) {
            let batch = &mut kept.batches[at];
            if batch.takes(transmit, segments) {
                batch.contents.extend_from_slice(contents);
                batch.grows = true;
                if !full || !batch.takes(transmit, segments) {
                    // If the socket does not take it now, it is sent with the rest.
                    let _ = self.depart(&mut kept, at);
                }
                return Ok(());
            }
            self.depart(&mut kept, at)?;
        }
        let Some(segment) = segment_size.filter(|_| full && kept.batches.len() < CONNECTIONS) else {
            drop(kept);
            return self.socket.try_send(transmit);
        };
        let mut bytes = kept.buffers.pop().unwrap_or_default();
        bytes.extend_from_slice(contents);
        kept.batches.push(GsoBatch { destination, source, ecn, segment, contents: bytes, grows: true });
        if let Some(sender) = kept.sender.take() {
            sender.wake();
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_recv(cx, bufs, metas)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

impl fmt::Debug for GsoSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GsoSocket").field(&self.socket).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    use super::*;

    const SIZE: usize = 1_200;

    /// What was sent: whether in segments, and the first byte of each datagram.
    type Left = (Option<usize>, Vec<u8>);

    /// A socket that takes everything, or nothing.
    #[derive(Debug, Default)]
    struct Wire {
        left: Mutex<Vec<Left>>,
        full: AtomicBool,
    }

    #[derive(Debug)]
    struct Poller(Arc<Wire>);

    impl UdpPoller for Poller {
        fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.0.full.load(Relaxed) { Poll::Pending } else { Poll::Ready(Ok(())) }
        }
    }

    impl AsyncUdpSocket for Wire {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            Box::pin(Poller(self))
        }

        fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
            if self.full.load(Relaxed) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let size = transmit.segment_size.unwrap_or(transmit.contents.len());
            let firsts = transmit.contents.chunks(size).map(|datagram| datagram[0]).collect();
            self.left.lock().expect("not poisoned").push((transmit.segment_size, firsts));
            Ok(())
        }

        fn poll_recv(
            &self,
            _: &mut Context<'_>,
            _: &mut [IoSliceMut<'_>],
            _: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            unreachable!("nothing is received")
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            unreachable!("nobody asks")
        }

        fn max_transmit_segments(&self) -> usize {
            64
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    struct Line {
        wire: Arc<Wire>,
        gathering: Arc<GsoSocket>,
        woken: Arc<Woken>,
    }

    impl Line {
        fn new() -> Self {
            let wire = Arc::new(Wire::default());
            let line =
                Self { gathering: GsoSocket::new(wire.clone()), wire, woken: Arc::new(Woken::default()) };
            assert_eq!(line.round(), []);
            line
        }

        /// Sends this many datagrams to a port. The last has `last` bytes; each starts with `mark`.
        fn send(&self, port: u16, count: usize, last: usize, mark: u8) -> io::Result<()> {
            let contents = vec![mark; (count - 1) * SIZE + last];
            let segment_size = (count > 1).then_some(SIZE);
            let destination = ([127, 0, 0, 1], port).into();
            let transmit =
                Transmit { destination, ecn: None, contents: &contents, segment_size, src_ip: None };
            self.gathering.try_send(&transmit)
        }

        fn fill(&self, port: u16, mark: u8) {
            self.send(port, FULL, SIZE, mark).expect("taken");
        }

        /// What was sent since the last call.
        fn left(&self) -> Vec<Left> {
            std::mem::take(&mut *self.wire.left.lock().expect("not poisoned"))
        }

        /// Runs the sender once. Returns what was sent.
        fn round(&self) -> Vec<Left> {
            let waker = Arc::clone(&self.woken).into();
            let mut poller = Arc::clone(&self.wire).create_io_poller();
            let polled = self.gathering.poll_rest(poller.as_mut(), &mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            self.left()
        }

        /// How often the sender was woken since the last call.
        fn woken(&self) -> usize {
            self.woken.0.swap(0, Relaxed)
        }
    }

    fn batch(of: &[(u8, usize)]) -> Left {
        (Some(SIZE), of.iter().flat_map(|&(mark, count)| vec![mark; count]).collect())
    }

    #[test]
    fn what_is_all_there_is_leaves_at_once() {
        let line = Line::new();
        line.send(1, 1, 50, b'a').expect("taken");
        line.send(1, 7, SIZE, b'b').expect("taken");
        line.send(1, FULL, 100, b'c').expect("taken");
        assert_eq!(line.left(), [(None, vec![b'a']), batch(&[(b'b', 7)]), batch(&[(b'c', FULL)])]);
        assert_eq!(line.woken(), 0);
    }

    #[test]
    fn more_of_a_connection_leaves_together_and_in_order() {
        let line = Line::new();
        line.fill(1, b'a');
        assert_eq!((line.left(), line.woken()), (vec![], 1));
        line.fill(1, b'b');
        line.send(1, 3, 100, b'c').expect("taken");
        assert_eq!(line.left(), [batch(&[(b'a', FULL), (b'b', FULL), (b'c', 3)])]);
        // As many as fit one call, without waiting for a last one.
        for mark in b'a'..b'f' {
            line.fill(1, mark);
        }
        let of: Vec<_> = (b'a'..b'f').map(|mark| (mark, FULL)).collect();
        assert_eq!(line.left(), [batch(&of)]);
        assert_eq!(line.round(), []);
    }

    #[test]
    fn what_grows_no_more_leaves_in_the_next_round() {
        let line = Line::new();
        line.fill(1, b'a');
        line.fill(2, b'x');
        assert_eq!((line.round(), line.woken()), (vec![], 2), "woken by the first, and again by itself");
        line.fill(1, b'b');
        assert_eq!((line.round(), line.woken()), (vec![batch(&[(b'x', FULL)])], 1));
        assert_eq!((line.round(), line.woken()), (vec![batch(&[(b'a', FULL), (b'b', FULL)])], 0));
        line.fill(1, b'c');
        assert_eq!(line.woken(), 1);
    }

    #[test]
    fn what_fits_no_train_leaves_after_it() {
        let line = Line::new();
        line.fill(1, b'a');
        // Longer than the others, like a probe of the path.
        line.send(1, 1, SIZE + 50, b'p').expect("taken");
        assert_eq!(line.left(), [batch(&[(b'a', FULL)]), (None, vec![b'p'])]);
    }

    #[test]
    fn what_the_socket_does_not_take_is_kept_in_order() {
        let line = Line::new();
        line.fill(1, b'a');
        line.wire.full.store(true, Relaxed);
        line.send(1, 2, 100, b'b').expect("taken");
        let more = line.send(1, 1, 100, b'c').expect_err("not taken");
        assert_eq!(more.kind(), io::ErrorKind::WouldBlock);
        let other = line.send(2, 1, 100, b'x').expect_err("not taken");
        assert_eq!(other.kind(), io::ErrorKind::WouldBlock);
        assert_eq!((line.round(), line.round()), (vec![], vec![]));
        line.wire.full.store(false, Relaxed);
        assert_eq!(line.round(), [batch(&[(b'a', FULL), (b'b', 2)])]);
        line.send(1, 1, 100, b'c').expect("taken");
        assert_eq!(line.left(), [(None, vec![b'c'])]);
    }

    #[test]
    fn so_many_connections_have_something_kept_and_no_more() {
        let line = Line::new();
        for port in 0..=CONNECTIONS as u16 {
            line.fill(port, b'a');
        }
        assert_eq!(line.left(), [batch(&[(b'a', FULL)])]);
        assert_eq!(line.round(), []);
        assert_eq!(line.round().len(), CONNECTIONS);
    }
}
