//! Runs the connections of one worker's endpoint, with quinn-proto, on one task.
//!
//! ```text
//!                ┌───────────────────────── Driver ─────────────────────────┐
//! socket ──recv──▶ proto::Endpoint ──▶ proto::Connection ──events──▶ wakers ─┼──▶ tasks of connections
//! socket ◀─send── up to 64 KiB a call ◀── Queue of connections ◀─────────────┼─── writes, reads, closes
//!                └──────────────────────────────────────────────────────────┘
//! ```
//!
//! A round first sends what connections have, and then receives. So the tasks that a datagram wakes run before the next
//! round, and acknowledgements leave with their answers. quinn itself fills at most ten datagrams at a time, and has a
//! task and a channel for each connection.
//!
//! Locks are taken in this order: the endpoint's, a connection's, the queue's. They are held briefly, and usually only
//! by this worker's thread.

mod connection;
mod endpoint;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::BytesMut;
use foldhash::fast::RandomState;
use quinn::udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use quinn_proto::{ConnectionHandle, DatagramEvent};
use tokio::time::Sleep;

pub(crate) use connection::Connection;
pub(crate) use endpoint::{Endpoint, Incoming};
pub(crate) use streams::{Opened, PollRead, ReadError, RecvStream, SendStream, WriteError};

/// The most bytes of one call: an IP packet's payload, less IP's and UDP's headers (RFC 768, RFC 8200).
const MOST_BYTES: usize = 65_535 - 40 - 8;

/// Datagrams that arrive together share an allocation of at most this size, unless one of them is larger. All of it
/// stays as long as one byte waits to be read, of which quinn counts no more than the datagram. One for each datagram
/// would be two calls of the allocator for each, which uploads would notice.
const SHARED_BYTES: usize = 8 * 1024;

/// How many calls a round sends with before other tasks have their turn: half a MiB, which takes some 0.3 ms.
const SENDS: usize = 8;

/// The connections that may have something to send, and the task that sends it.
#[derive(Debug, Default)]
struct Queue(Mutex<Queued>);

#[derive(Debug, Default)]
struct Queued {
    connections: VecDeque<ConnectionHandle>,
    driver: Option<Waker>,
}

impl Queue {
    /// Adds a connection, which must not be in it.
    fn push(&self, connection: ConnectionHandle) {
        let mut queued = lock(&self.0);
        queued.connections.push_back(connection);
        wake(&mut queued.driver);
    }

    fn pop(&self) -> Option<ConnectionHandle> {
        lock(&self.0).connections.pop_front()
    }

    /// Registers the driver for the next connection. False if there is one already.
    fn wait(&self, cx: &Context<'_>) -> bool {
        let mut queued = lock(&self.0);
        if !queued.connections.is_empty() {
            return false;
        }
        wait(&mut queued.driver, cx);
        true
    }
}

/// What the driver and the handles of an endpoint share.
struct Shared {
    state: Mutex<State>,
    queue: Arc<Queue>,
    socket: Arc<dyn AsyncUdpSocket>,
}

/// The state of an endpoint.
struct State {
    endpoint: quinn_proto::Endpoint,
    connections: HashMap<ConnectionHandle, Arc<connection::Shared>, RandomState>,
    incoming: VecDeque<quinn_proto::Incoming>,
    /// Who waits for the next incoming connection.
    accepting: Option<Waker>,
    /// Who waits until there are no connections.
    idle: Option<Waker>,
    /// Whether new clients are refused.
    closed: bool,
    /// Whether the socket has failed.
    failed: bool,
}

/// The task of an endpoint.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    poller: Pin<Box<dyn UdpPoller>>,
    /// When connections want to be looked at, in order.
    timers: BTreeSet<(Instant, usize)>,
    /// For the first of `timers`.
    sleep: Pin<Box<Sleep>>,
    /// What is being sent, and whether the socket did not take it.
    sending: Vec<u8>,
    unsent: Option<quinn_proto::Transmit>,
    receiving: Box<[u8]>,
    /// What the endpoint itself answers.
    answer: Vec<u8>,
}

impl Driver {
    /// The task of this endpoint, which never ends unless the socket fails.
    fn new(shared: Arc<Shared>) -> Self {
        let poller = Arc::clone(&shared.socket).create_io_poller();
        let largest = usize::try_from(lock(&shared.state).endpoint.config().get_max_udp_payload_size());
        let segment = largest.unwrap_or(usize::MAX).min(64 * 1024);
        let receiving = vec![0; segment * shared.socket.max_receive_segments() * BATCH_SIZE];
        Self {
            shared,
            poller,
            timers: BTreeSet::new(),
            sleep: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)),
            sending: Vec::with_capacity(MOST_BYTES),
            unsent: None,
            receiving: receiving.into(),
            answer: Vec::new(),
        }
    }

    /// Runs the endpoint.
    pub(crate) async fn run(mut self) {
        let error = poll_fn(|cx| self.poll_round(cx)).await;
        tracing::error!(%error, "a QUIC socket has failed");
        let mut state = lock(&self.shared.state);
        state.failed = true;
        for connection in state.connections.values() {
            connection.lose();
        }
        wake(&mut state.accepting);
        wake(&mut state.idle);
    }

    /// One round; ready with an error of the socket.
    fn poll_round(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let now = Instant::now();
        self.expire(now);
        let mut busy = match self.poll_send(now, cx) {
            Poll::Ready(Ok(more)) => more,
            Poll::Ready(Err(error)) => return Poll::Ready(error),
            // It is woken once the socket takes more.
            Poll::Pending => false,
        };
        match self.poll_receive(now, cx) {
            Poll::Ready(Ok(())) => busy = true,
            Poll::Ready(Err(error)) => return Poll::Ready(error),
            Poll::Pending => {}
        }
        // Whoever the datagrams have woken runs first.
        busy |= self.unsent.is_none() && !self.shared.queue.wait(cx);
        busy |= self.poll_timers(cx).is_ready();
        if busy {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Queues connections whose time has come.
    fn expire(&mut self, now: Instant) {
        while let Some(&(due, handle)) = self.timers.first()
            && due <= now
        {
            self.timers.pop_first();
            let connection = lock(&self.shared.state).connections.get(&ConnectionHandle(handle)).cloned();
            if let Some(connection) = connection {
                connection.expire(now);
            }
        }
    }

    /// Ready if a timer has expired meanwhile.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(&(first, _)) = self.timers.first() else { return Poll::Pending };
        let first = first.into();
        if self.sleep.deadline() != first {
            self.sleep.as_mut().reset(first);
        }
        self.sleep.as_mut().poll(cx)
    }

    /// Sends what queued connections have, in turns of one call each. Ready with whether there is more, pending if the
    /// socket takes no more.
    fn poll_send(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Some(transmit) = self.unsent.take() {
            ready!(self.poll_transmit(transmit, cx))?;
        }
        for _ in 0..SENDS {
            let Some(handle) = self.shared.queue.pop() else { return Poll::Ready(Ok(false)) };
            let Some(connection) = lock(&self.shared.state).connections.get(&handle).cloned() else {
                continue;
            };
            self.sending.clear();
            let segments = self.shared.socket.max_transmit_segments();
            let (transmit, armed) = connection.transmit(now, segments, &mut self.sending);
            if let Some((before, after)) = armed {
                if let Some(before) = before {
                    self.timers.remove(&(before, handle.0));
                }
                self.timers.insert((after, handle.0));
            }
            self.pass_events(handle, &connection);
            if let Some(transmit) = transmit {
                ready!(self.poll_transmit(transmit, cx))?;
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Sends what is in `sending`, or keeps it until the socket takes it.
    fn poll_transmit(
        &mut self,
        transmit: quinn_proto::Transmit,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match send(&*self.shared.socket, &transmit, &self.sending) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // What one client's address or path does not allow must not end the others' endpoint: it is lost, as
                // it may be on its way.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
            if self.poller.as_mut().poll_writable(cx)?.is_pending() {
                self.unsent = Some(transmit);
                return Poll::Pending;
            }
        }
    }

    /// Passes events of a connection to the endpoint, and forgets it once it has ended.
    fn pass_events(&mut self, handle: ConnectionHandle, connection: &connection::Shared) {
        while let Some(event) = connection.poll_endpoint_event() {
            let drained = event.is_drained();
            let mut state = lock(&self.shared.state);
            if let Some(event) = state.endpoint.handle_event(handle, event) {
                connection.handle_event(event);
            }
            if drained {
                state.connections.remove(&handle);
                if state.connections.is_empty() {
                    wake(&mut state.idle);
                }
                if let Some(armed) = connection.disarm() {
                    self.timers.remove(&(armed, handle.0));
                }
                return;
            }
        }
    }

    /// Receives datagrams with one call. Ready if there may be more.
    fn poll_receive(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut chunks = self.receiving.chunks_mut(self.receiving.len() / BATCH_SIZE);
        let mut bufs: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("as many chunks")));
        let count = match ready!(shared.socket.poll_recv(cx, &mut bufs, &mut metas)) {
            Ok(count) => count,
            // Anybody can cause it, by ICMP.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Poll::Ready(Err(error)),
        };
        for (meta, buf) in metas.iter().zip(&bufs).take(count) {
            for several in allocations(&buf[..meta.len], meta.stride) {
                let mut datagrams = BytesMut::from(several);
                while !datagrams.is_empty() {
                    let datagram = datagrams.split_to(meta.stride.clamp(1, datagrams.len()));
                    shared.receive(now, meta, datagram, &mut self.answer);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Shared {
    fn receive(&self, now: Instant, meta: &RecvMeta, datagram: BytesMut, answer: &mut Vec<u8>) {
        let ecn = meta.ecn.and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
        answer.clear();
        let mut state = lock(&self.state);
        match state.endpoint.handle(now, meta.addr, meta.dst_ip, ecn, datagram, answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = state.connections.get(&handle) {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) if state.closed => {
                let transmit = state.endpoint.refuse(incoming, answer);
                self.answer(&transmit, answer);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                state.incoming.push_back(incoming);
                wake(&mut state.accepting);
            }
            Some(DatagramEvent::Response(transmit)) => self.answer(&transmit, answer),
            None => {}
        }
    }

    /// Sends a datagram of the endpoint itself. If the socket does not take it now, it is lost, as it may be on its
    /// way.
    fn answer(&self, transmit: &quinn_proto::Transmit, contents: &[u8]) {
        let _ = send(&*self.socket, transmit, contents);
    }
}

/// Divides datagrams of `stride` bytes, of which the last one may be shorter, by the allocations that they share.
fn allocations(datagrams: &[u8], stride: usize) -> std::slice::Chunks<'_, u8> {
    let stride = stride.max(1);
    datagrams.chunks((SHARED_BYTES / stride).max(1) * stride)
}

fn send(socket: &dyn AsyncUdpSocket, transmit: &quinn_proto::Transmit, contents: &[u8]) -> io::Result<()> {
    socket.try_send(&Transmit {
        destination: transmit.destination,
        ecn: transmit.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        contents: &contents[..transmit.size],
        segment_size: transmit.segment_size,
        src_ip: transmit.src_ip,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}

/// Makes this task the one that is woken.
fn wait(waiting: &mut Option<Waker>, cx: &Context<'_>) {
    if !waiting.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *waiting = Some(cx.waker().clone());
    }
}
