//! A connection: its state, and the handle that its tasks share.

use std::any::Any;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::fast::RandomState;
use quinn_proto::congestion::Controller;
use quinn_proto::{
    ConnectionError, ConnectionEvent, ConnectionHandle, Dir, EndpointEvent, Event, StreamEvent, StreamId,
    Transmit, TransportError, TransportErrorCode, VarInt,
};

use super::{MOST_BYTES, Queue, lock, wait, wake};

/// What the driver and the handles of a connection share.
#[derive(Debug)]
pub(super) struct Shared {
    handle: ConnectionHandle,
    state: Mutex<State>,
    queue: Arc<Queue>,
}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct State {
    pub(super) inner: quinn_proto::Connection,
    /// Why it has ended.
    pub(super) error: Option<ConnectionError>,
    established: bool,
    /// Whether it is in the queue.
    queued: bool,
    /// When the driver looks at it again, at the latest.
    armed: Option<Instant>,
    /// Who waits for the end of the handshake, and for streams, which are of [`Dir`].
    establishing: Option<Waker>,
    accepting: [Option<Waker>; 2],
    opening: Option<Waker>,
    pub(super) readers: Waiting,
    pub(super) writers: Waiting,
}

/// Who waits for a stream.
type Waiting = HashMap<StreamId, Waker, RandomState>;

/// How the driver's timer changes: when it was due, if it was, and when it is.
type Armed = Option<(Option<Instant>, Instant)>;

impl Shared {
    pub(super) fn new(
        handle: ConnectionHandle,
        inner: quinn_proto::Connection,
        queue: Arc<Queue>,
    ) -> Arc<Self> {
        let state = State {
            inner,
            error: None,
            established: false,
            queued: false,
            armed: None,
            establishing: None,
            accepting: [None, None],
            opening: None,
            readers: Waiting::default(),
            writers: Waiting::default(),
        };
        Arc::new(Self { handle, state: Mutex::new(state), queue })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has the driver look at it.
    pub(super) fn queue(&self) {
        self.queue_locked(&mut self.state());
    }

    /// The same with the lock held.
    pub(super) fn queue_locked(&self, state: &mut State) {
        if !std::mem::replace(&mut state.queued, true) {
            self.queue.push(self.handle);
        }
    }

    /// Handles a datagram or an answer of the endpoint, and wakes who waits for what it brings.
    pub(super) fn handle_event(&self, event: ConnectionEvent) {
        let mut state = self.state();
        state.inner.handle_event(event);
        state.wake_tasks();
        self.queue_locked(&mut state);
    }

    /// Its timer is due.
    pub(super) fn expire(&self, now: Instant) {
        let mut state = self.state();
        state.armed = None;
        if state.inner.poll_timeout().is_some_and(|due| due <= now) {
            state.inner.handle_timeout(now);
            state.wake_tasks();
        }
        self.queue_locked(&mut state);
    }

    /// Takes it from the queue. Writes its next datagrams, of as many segments as one call may have, and puts it into
    /// the queue again if there are any.
    pub(super) fn transmit(
        &self,
        now: Instant,
        segments: usize,
        buffer: &mut Vec<u8>,
    ) -> (Option<Transmit>, Armed) {
        let mut state = self.state();
        state.queued = false;
        let segments = segments.min(MOST_BYTES / usize::from(state.inner.current_mtu())).max(1);
        let transmit = state.inner.poll_transmit(now, segments, buffer);
        state.wake_tasks();
        if transmit.is_some() {
            self.queue_locked(&mut state);
        }
        (transmit, state.arm())
    }

    pub(super) fn poll_endpoint_event(&self) -> Option<EndpointEvent> {
        self.state().inner.poll_endpoint_events()
    }

    /// When it was due.
    pub(super) fn disarm(&self) -> Option<Instant> {
        self.state().armed.take()
    }

    /// Closes it, if it is not closed.
    pub(super) fn close(&self, code: VarInt, reason: Bytes) {
        let mut state = self.state();
        if state.error.is_none() {
            state.inner.close(Instant::now(), code, reason);
            state.end(ConnectionError::LocallyClosed);
            self.queue_locked(&mut state);
        }
    }

    /// Its socket has failed.
    pub(super) fn lose(&self) {
        let mut state = self.state();
        if state.error.is_none() {
            state.end(ConnectionError::TransportError(TransportError {
                code: TransportErrorCode::INTERNAL_ERROR,
                frame: None,
                reason: "the socket has failed".to_owned(),
            }));
        }
    }
}

impl State {
    /// Wakes those who wait for what has happened.
    fn wake_tasks(&mut self) {
        while let Some(event) = self.inner.poll() {
            match event {
                Event::Connected => {
                    self.established = true;
                    wake(&mut self.establishing);
                }
                Event::ConnectionLost { reason } => self.end(reason),
                Event::Stream(StreamEvent::Opened { dir }) => wake(&mut self.accepting[dir as usize]),
                Event::Stream(StreamEvent::Readable { id }) => wake_stream(&mut self.readers, id),
                Event::Stream(StreamEvent::Writable { id } | StreamEvent::Stopped { id, .. }) => {
                    wake_stream(&mut self.writers, id);
                }
                Event::Stream(StreamEvent::Available { dir: Dir::Uni }) => wake(&mut self.opening),
                Event::Stream(StreamEvent::Available { dir: Dir::Bi } | StreamEvent::Finished { .. })
                | Event::HandshakeDataReady
                | Event::DatagramReceived
                | Event::DatagramsUnblocked => {}
            }
        }
    }

    /// The connection has ended: nobody waits any longer.
    fn end(&mut self, error: ConnectionError) {
        self.error.get_or_insert(error);
        wake(&mut self.establishing);
        self.accepting.iter_mut().for_each(wake);
        wake(&mut self.opening);
        self.readers.drain().for_each(|(_, reader)| reader.wake());
        self.writers.drain().for_each(|(_, writer)| writer.wake());
    }

    /// The driver's timer only moves if it would be too late: a connection that is looked at too early just sets it
    /// again.
    fn arm(&mut self) -> Armed {
        let due = self.inner.poll_timeout()?;
        if self.armed.is_some_and(|armed| armed <= due) {
            return None;
        }
        Some((self.armed.replace(due), due))
    }
}

fn wake_stream(waiting: &mut Waiting, id: StreamId) {
    if !waiting.is_empty()
        && let Some(waker) = waiting.remove(&id)
    {
        waker.wake();
    }
}

/// A connection. When the last of its clones and streams is dropped, it is closed.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Handle>);

/// What all handles of a connection hold.
#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close(VarInt::from_u32(0), Bytes::new());
    }
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Handle(shared)))
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0.0
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.shared().state()
    }

    /// Waits for the end of the handshake.
    pub(super) async fn established(&self) -> Result<(), ConnectionError> {
        poll_fn(|cx| {
            let mut state = self.state();
            match &state.error {
                Some(error) => Poll::Ready(Err(error.clone())),
                None if state.established => Poll::Ready(Ok(())),
                None => {
                    wait(&mut state.establishing, cx);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The id of the next stream that the client has opened. One task may wait for it.
    pub(super) fn poll_accept(
        &self,
        dir: Dir,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        self.poll_accept_locked(&mut self.state(), dir, cx)
    }

    /// The same with the lock held.
    pub(super) fn poll_accept_locked(
        &self,
        state: &mut State,
        dir: Dir,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        if let Some(id) = state.inner.streams().accept(dir) {
            // The client may open another one.
            self.shared().queue_locked(state);
            return Poll::Ready(Ok(id));
        }
        if let Some(error) = &state.error {
            return Poll::Ready(Err(error.clone()));
        }
        wait(&mut state.accepting[dir as usize], cx);
        Poll::Pending
    }

    /// The id of a stream that only this side sends on, once the client allows one. One task may wait for it.
    pub(super) fn poll_open(&self, cx: &mut Context<'_>) -> Poll<Result<StreamId, ConnectionError>> {
        let mut state = self.state();
        if let Some(error) = &state.error {
            return Poll::Ready(Err(error.clone()));
        }
        match state.inner.streams().open(Dir::Uni) {
            Some(id) => Poll::Ready(Ok(id)),
            None => {
                wait(&mut state.opening, cx);
                Poll::Pending
            }
        }
    }

    /// Closes the connection at once: what is not sent yet is dropped.
    pub(crate) fn close(&self, code: VarInt, reason: &[u8]) {
        self.shared().close(code, Bytes::copy_from_slice(reason));
    }

    /// The client's address, which may change.
    pub(crate) fn remote_address(&self) -> SocketAddr {
        self.state().inner.remote_address()
    }

    /// Our own, if the socket tells.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.state().inner.local_ip()
    }

    /// What the TLS library knows of the handshake.
    pub(crate) fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.state().inner.crypto_session().handshake_data()
    }

    /// The estimated round trip time.
    pub(crate) fn rtt(&self) -> Duration {
        self.state().inner.rtt()
    }

    /// How many streams may have data that is not acknowledged.
    pub(crate) fn send_streams(&self) -> usize {
        self.state().inner.streams().send_streams()
    }

    /// The congestion window, in bytes.
    pub(crate) fn congestion_window(&self) -> u64 {
        self.state().inner.congestion_state().window()
    }

    /// A copy of the congestion controller.
    pub(crate) fn congestion_state(&self) -> Box<dyn Controller> {
        self.state().inner.congestion_state().clone_box()
    }

    /// Sets how many bytes may be sent without acknowledgement.
    pub(crate) fn set_send_window(&self, bytes: u64) {
        let mut state = self.state();
        state.inner.set_send_window(bytes);
        // Writers may go on.
        state.wake_tasks();
    }
}
