//! A worker's socket that passes datagrams of other workers' connections to their owners.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::cid::{self, CidKey};
use super::hot_restart::{Predecessor, Relay};
use crate::metrics::Metrics;

/// The most datagrams that wait for one worker: at 1,472 bytes each some 1.5 MiB. Further ones are dropped, as by a
/// full socket buffer, and QUIC sends them again.
const QUEUED: usize = 1_024;

/// The queues of datagrams that reached another worker than their own.
#[derive(Debug)]
pub(crate) struct CidRouter {
    ids: CidKey,
    queues: Box<[DatagramQueue]>,
    /// Previous processes of these sockets that may still have connections, last first.
    predecessors: Vec<Predecessor>,
    /// Whether another process has the sockets now.
    handed_over: AtomicBool,
}

impl CidRouter {
    /// For this many workers, at most [`cid::WORKERS`].
    pub(super) fn new(workers: usize, predecessors: Vec<Predecessor>) -> Self {
        assert!(workers <= cid::WORKERS, "an id names its worker");
        let queues = (0..workers).map(|_| DatagramQueue::default()).collect();
        Self { ids: CidKey::default(), queues, predecessors, handed_over: AtomicBool::new(false) }
    }

    /// The key of all workers' ids.
    pub(super) fn ids(&self) -> &CidKey {
        &self.ids
    }

    /// The previous processes.
    pub(super) fn predecessors(&self) -> &[Predecessor] {
        &self.predecessors
    }

    /// From now on, another process reads the sockets, and our datagrams come back through the relays.
    pub(super) fn hand_over(&self) {
        self.handed_over.store(true, SeqCst);
        self.queues.iter().for_each(DatagramQueue::wake);
    }

    /// Generates ids for `worker`'s connections.
    pub(super) fn generator(&self, worker: u8) -> cid::CidGenerator {
        let before = self.predecessors.iter().map(|predecessor| predecessor.ids().clone());
        self.ids.generator(worker, before.collect())
    }

    /// Combines `sockets`, of which there is at least one, into one for the endpoint of `worker`. Passed-on datagrams
    /// are counted in `metrics`.
    pub(super) fn demux(
        self: &Arc<Self>,
        worker: u8,
        sockets: Vec<Arc<dyn AsyncUdpSocket>>,
        relay: Option<Relay>,
        metrics: Metrics,
    ) -> Arc<dyn AsyncUdpSocket> {
        // There is nothing to pass on or to receive.
        if self.queues.len() == 1 && sockets.len() == 1 && relay.is_none() && self.predecessors.is_empty() {
            return Arc::clone(&sockets[0]);
        }
        let (router, next) = (self.clone(), AtomicUsize::new(0));
        Arc::new(CidDemux { router, sockets: sockets.into(), next, relay, worker, metrics })
    }

    /// The owner of a datagram's connection, if the datagram's id names one.
    ///
    /// The id in a client's first packets was chosen by the client. These packets and their repetitions come from one
    /// port, so one worker gets them all.
    fn owner(&self, datagram: &[u8]) -> Option<Owner<'_>> {
        // RFC 9000, section 17: the form bit, then the version and the id's length in the long form.
        const LONG: u8 = 0x80;
        let id = match datagram {
            [first, rest @ ..] if first & LONG == 0 => rest.get(..cid::LENGTH),
            [_, _, _, _, _, length, rest @ ..] if usize::from(*length) == cid::LENGTH => {
                rest.get(..cid::LENGTH)
            }
            _ => None,
        }?;
        match self.ids.worker(id).filter(|&worker| usize::from(worker) < self.queues.len()) {
            Some(worker) => Some(Owner::Worker(worker)),
            None => {
                let mut of_all =
                    self.predecessors.iter().map(|predecessor| (predecessor, predecessor.worker(id)));
                of_all.find_map(|(predecessor, worker)| Some(Owner::Predecessor(predecessor, worker?)))
            }
        }
    }
}

/// The owner of a connection.
enum Owner<'a> {
    /// A worker of this process.
    Worker(u8),
    /// A worker of a previous process.
    Predecessor(&'a Predecessor, u8),
}

/// Datagrams that other workers left for one worker.
#[derive(Debug, Default)]
struct DatagramQueue {
    /// Checked before the lock is taken.
    filled: AtomicBool,
    inner: Mutex<Queued>,
}

#[derive(Debug, Default)]
struct Queued {
    datagrams: VecDeque<(RecvMeta, Box<[u8]>)>,
    reader: Option<Waker>,
}

impl DatagramQueue {
    /// Adds a datagram. False if there is no room.
    fn put(&self, meta: RecvMeta, datagram: &[u8]) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.datagrams.len() >= QUEUED {
            return false;
        }
        inner.datagrams.push_back((meta, datagram.into()));
        self.filled.store(true, Relaxed);
        if let Some(reader) = inner.reader.take() {
            reader.wake();
        }
        true
    }

    /// Takes as many datagrams as there are buffers.
    fn take(&self, bufs: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]) -> usize {
        // A stale value does no harm: a worker checks again under the lock before it waits.
        if !self.filled.load(Relaxed) {
            return 0;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = 0;
        for (buf, slot) in bufs.iter_mut().zip(metas) {
            let Some((meta, datagram)) = inner.datagrams.pop_front() else { break };
            let Some(room) = buf.get_mut(..datagram.len()) else { continue };
            room.copy_from_slice(&datagram);
            *slot = meta;
            taken += 1;
        }
        self.filled.store(!inner.datagrams.is_empty(), Relaxed);
        taken
    }

    /// Makes its owner check again where datagrams come from.
    fn wake(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = inner.reader.take() {
            reader.wake();
        }
    }

    /// Registers for a wake-up by the next datagram. False if there is one already.
    fn wait(&self, cx: &Context<'_>) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.datagrams.is_empty() {
            return false;
        }
        if !inner.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            inner.reader = Some(cx.waker().clone());
        }
        true
    }
}

/// The socket of one worker.
struct CidDemux {
    router: Arc<CidRouter>,
    /// The first one sends.
    sockets: Box<[Arc<dyn AsyncUdpSocket>]>,
    /// The socket after the last one from which something was received. It is the first to be asked, since one that
    /// always has something would otherwise starve the others.
    next: AtomicUsize,
    relay: Option<Relay>,
    worker: u8,
    metrics: Metrics,
}

impl CidDemux {
    /// Passes on datagrams of other owners, and moves the rest to the front of `buf`.
    ///
    /// One buffer may hold many datagrams of one sender (GRO), who may have connections with several workers, so each
    /// is checked.
    fn sort(&self, buf: &mut [u8], meta: &mut RecvMeta) {
        if self.router.queues.len() == 1 && self.router.predecessors.is_empty() {
            return;
        }
        let mut kept = 0;
        let mut at = 0;
        while at < meta.len {
            let end = meta.len.min(at + meta.stride.max(1));
            match self.router.owner(&buf[at..end]) {
                Some(Owner::Worker(owner)) if owner != self.worker => {
                    self.forward(owner, meta, &buf[at..end])
                }
                Some(Owner::Predecessor(predecessor, worker)) => {
                    self.count(predecessor.relay(worker, meta, &buf[at..end]));
                }
                _ => {
                    if kept != at {
                        buf.copy_within(at..end, kept);
                    }
                    kept += end - at;
                }
            }
            at = end;
        }
        meta.len = kept;
    }

    fn forward(&self, owner: u8, meta: &RecvMeta, datagram: &[u8]) {
        let meta = RecvMeta { len: datagram.len(), stride: datagram.len(), ..*meta };
        self.count(self.router.queues[usize::from(owner)].put(meta, datagram));
    }

    fn count(&self, handed_on: bool) {
        let counts = self.metrics.worker(usize::from(self.worker));
        if handed_on { &counts.quic_forwarded } else { &counts.quic_dropped }.increment();
    }

    /// Receives from the sockets, or from the relay once another process has them.
    fn poll_source(
        &self,
        handed_over: bool,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if handed_over {
            let Some(relay) = &self.relay else { return Poll::Pending };
            return relay.poll_recv(cx, &mut bufs[0], &mut metas[0]).map_ok(|()| 1);
        }
        let next = self.next.load(Relaxed);
        for turn in (next..self.sockets.len()).chain(0..next) {
            if let Poll::Ready(received) = self.sockets[turn].poll_recv(cx, bufs, metas) {
                self.next.store(if turn + 1 < self.sockets.len() { turn + 1 } else { 0 }, Relaxed);
                let received = received?;
                for (buf, meta) in bufs.iter_mut().zip(&mut *metas).take(received) {
                    self.sort(buf, meta);
                }
                return Poll::Ready(Ok(received));
            }
        }
        Poll::Pending
    }
}

impl AsyncUdpSocket for CidDemux {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.sockets[0]).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.sockets[0].try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let queue = &self.router.queues[usize::from(self.worker)];
        loop {
            let taken = queue.take(bufs, metas);
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            let handed_over = self.router.handed_over.load(SeqCst);
            let received = self.poll_source(handed_over, cx, bufs, metas);
            // Whoever changes either of the two wakes a waiting worker.
            if received.is_pending()
                && (!queue.wait(cx) || handed_over != self.router.handed_over.load(SeqCst))
            {
                continue;
            }
            return received;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.sockets[0].local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.sockets[0].max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.sockets[0].max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.sockets[0].may_fragment()
    }
}

impl fmt::Debug for CidDemux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CidDemux").field("worker", &self.worker).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::limits::ResponseBudget;

    /// A socket that receives these batches, one per poll.
    #[derive(Debug, Default)]
    struct Given(Mutex<VecDeque<(Vec<u8>, usize)>>);

    impl AsyncUdpSocket for Given {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            unreachable!("nothing is sent")
        }

        fn try_send(&self, _: &Transmit<'_>) -> io::Result<()> {
            unreachable!("nothing is sent")
        }

        fn poll_recv(
            &self,
            _: &mut Context<'_>,
            bufs: &mut [IoSliceMut<'_>],
            metas: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            let Some((batch, stride)) = self.0.lock().expect("not poisoned").pop_front() else {
                return Poll::Pending;
            };
            bufs[0][..batch.len()].copy_from_slice(&batch);
            metas[0] = RecvMeta { len: batch.len(), stride, ..RecvMeta::default() };
            Poll::Ready(Ok(1))
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            unreachable!("nobody asks")
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Two workers behind one router, and their wake-ups.
    struct Pair {
        router: Arc<CidRouter>,
        given: [Arc<Given>; 2],
        sockets: [Arc<dyn AsyncUdpSocket>; 2],
        woken: Arc<Woken>,
        metrics: Metrics,
    }

    impl Pair {
        fn new() -> Self {
            let router = Arc::new(CidRouter::new(2, Vec::new()));
            let metrics = Metrics::new(2, ResponseBudget::new(&Limits::default()));
            let given = [Arc::new(Given::default()), Arc::new(Given::default())];
            let demux = |worker: u8| {
                router.demux(worker, vec![given[usize::from(worker)].clone()], None, metrics.clone())
            };
            let sockets = [demux(0), demux(1)];
            Self { router, given, sockets, woken: Arc::default(), metrics }
        }

        /// A datagram of five bytes after an id of `worker`.
        fn short(&self, worker: u8, body: u8) -> Vec<u8> {
            let id = quinn::ConnectionIdGenerator::generate_cid(&mut self.router.generator(worker));
            [&[0x40][..], &id, &[body; 5]].concat()
        }

        fn give(&self, worker: usize, datagrams: &[Vec<u8>]) {
            let stride = datagrams[0].len();
            self.given[worker].0.lock().expect("not poisoned").push_back((datagrams.concat(), stride));
        }

        /// What a worker receives in one poll, by datagram. None if it has to wait.
        fn receive(&self, worker: usize) -> Option<Vec<Vec<u8>>> {
            let waker = Arc::clone(&self.woken).into();
            let (mut buf, mut metas) = ([0; 512], [RecvMeta::default(); 1]);
            let mut bufs = [IoSliceMut::new(&mut buf)];
            match self.sockets[worker].poll_recv(&mut Context::from_waker(&waker), &mut bufs, &mut metas) {
                Poll::Pending => None,
                Poll::Ready(received) => {
                    assert_eq!(received.expect("no error"), 1);
                    let RecvMeta { len, stride, .. } = metas[0];
                    Some(bufs[0][..len].chunks(stride.max(1)).map(<[u8]>::to_vec).collect())
                }
            }
        }
    }

    #[test]
    fn datagrams_reach_the_owner_of_their_connection() {
        let pair = Pair::new();
        assert_eq!(pair.receive(0), None, "and asks to be woken");
        let (mine, other) = (pair.short(1, b'a'), pair.short(0, b'b'));
        let more = pair.short(1, b'c');
        pair.give(1, &[mine.clone(), other.clone(), more.clone()]);
        assert_eq!(pair.receive(1), Some(vec![mine, more]), "one batch, sorted");
        assert_eq!(pair.woken.0.load(Relaxed), 1);
        assert_eq!(pair.receive(0), Some(vec![other]));
        assert_eq!(pair.receive(0), None);
        assert_eq!(pair.metrics.sum(|worker| &worker.quic_forwarded), 1);
    }

    #[test]
    fn a_busy_socket_does_not_starve_another() {
        let router = Arc::new(CidRouter::new(1, Vec::new()));
        let metrics = Metrics::new(1, ResponseBudget::new(&Limits::default()));
        let given = [Arc::new(Given::default()), Arc::new(Given::default())];
        for (socket, batches) in [(0, &b"aaaa"[..]), (1, b"bb")] {
            given[socket].0.lock().expect("not poisoned").extend(batches.iter().map(|byte| (vec![*byte], 1)));
        }
        let sockets = given.map(|socket| socket as Arc<dyn AsyncUdpSocket>).into();
        let demux = router.demux(0, sockets, None, metrics);
        let received = std::iter::from_fn(|| {
            let (mut buf, mut metas) = ([0; 512], [RecvMeta::default(); 1]);
            let mut bufs = [IoSliceMut::new(&mut buf)];
            match demux.poll_recv(&mut Context::from_waker(Waker::noop()), &mut bufs, &mut metas) {
                Poll::Ready(received) => received.is_ok().then(|| bufs[0][0]),
                Poll::Pending => None,
            }
        });
        assert_eq!(received.collect::<Vec<_>>(), b"ababaa");
    }

    #[test]
    fn what_names_no_owner_stays() {
        let pair = Pair::new();
        let id = quinn::ConnectionIdGenerator::generate_cid(&mut pair.router.generator(0));
        let handshake = [&[0xe0, 0, 0, 0, 1, 8][..], &id, &[0; 5]].concat();
        for datagram in [
            vec![],
            vec![0x40],
            vec![0x40; 7],
            // A client's first packet, with its own id, and datagrams that are not QUIC.
            [&[0xc0, 0, 0, 0, 1, 8][..], &[7; 20]].concat(),
            [&[0xc0, 0, 0, 0, 1, 20][..], &[7; 20]].concat(),
            vec![0xc0, 0, 0, 0, 1, 255, 3],
        ] {
            pair.give(1, std::slice::from_ref(&datagram));
            assert_eq!(pair.receive(1).expect("received").concat(), datagram);
        }
        pair.give(1, std::slice::from_ref(&handshake));
        assert_eq!(pair.receive(1), Some(vec![]), "what has an id of ours is handed on");
        assert_eq!(pair.receive(0), Some(vec![handshake]));
    }

    #[test]
    fn a_full_queue_drops() {
        let pair = Pair::new();
        let datagram = pair.short(0, b'x');
        for _ in 0..QUEUED + 3 {
            pair.give(1, std::slice::from_ref(&datagram));
            assert_eq!(pair.receive(1), Some(vec![]));
        }
        assert_eq!(pair.metrics.sum(|worker| &worker.quic_dropped), 3);
        let queued = std::iter::from_fn(|| pair.receive(0)).count();
        assert_eq!(queued, QUEUED);
    }
}
