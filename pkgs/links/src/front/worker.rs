//! One worker: a thread, a single-threaded runtime, its sockets and everything it need not share.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use listener::ConnectionPermit;
use rustix::net::{SocketFlags, acceptfrom_with};
use service::proxies::Source;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, LocalSet};

use crate::store::Reader;
use crate::when::Timestamp;

use super::answer::{DATE_BYTES, Pieces};
use super::context::WorkerContext;
use super::{Front, MAX_HEAD_BYTES, lane, retention};

/// How often a worker looks at the clock, enters its clicks in the ledger and closes what has waited too
/// long.
pub const TICK: Duration = Duration::from_millis(250);

/// How often the first worker hands the ledger to the store. Together with the tick before it, a click is on
/// its way to the store within a second.
const FLUSH: Duration = Duration::from_millis(750);

/// How long accepting pauses when the process is out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// At shutdown, an idle connection is kept this long, so that a request already on its way is answered.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// The most that are accepted of those who wait when draining begins: what net.core.somaxconn is since Linux 5.4.
const DRAIN_ACCEPTS: usize = 4096;

/// Bytes of answers that clients are slow to take, of all workers together. Beyond, whose answers find no room is
/// closed: most take theirs at once, and what they need is not for those who never read.
const HELD_BYTES: usize = 64 << 20;

/// Everything one worker has for itself.
pub struct Worker {
    index: usize,
    /// What visits are decided by.
    pub context: WorkerContext,
    /// Ticks since the worker started.
    tick: Cell<u32>,
    pub pieces: Pieces,
    /// What answers end with: the date, then `connection: close` where they close.
    pub tail: RefCell<Tail>,
    /// Received bytes, between a read and the answer to it; never across an await.
    pub scratch: RefCell<Box<[u8]>>,
    /// Answers, between a read and the write that follows; never across an await.
    pub out: RefCell<Vec<u8>>,
    /// Where in `scratch` the request is that is being answered.
    pub at: Cell<usize>,
    /// Bytes that wait for clients to take them.
    held: Cell<usize>,
    /// Whether every answer shall be its connection's last.
    pub draining: Cell<bool>,
    lives: RefCell<Vec<Rc<Life>>>,
}

/// The end of every head, by whether the connection stays open.
pub struct Tail {
    pub keep: Vec<u8>,
    pub close: Vec<u8>,
}

impl Tail {
    fn at(now: Timestamp) -> Self {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(u64::try_from(now.0).unwrap_or(0));
        let date = httpdate::fmt_http_date(time);
        debug_assert_eq!(date.len(), DATE_BYTES);
        Self {
            keep: format!("date: {date}\r\n\r\n").into_bytes(),
            close: format!("date: {date}\r\nconnection: close\r\n\r\n").into_bytes(),
        }
    }
}

/// How long a connection may yet live; looked at once a tick instead of arming a timer a request.
#[derive(Default)]
pub struct Life {
    deadline: Cell<u32>,
    stage: Cell<Stage>,
    done: Cell<bool>,
    task: OnceCell<AbortHandle>,
    /// Wakes the connection's task, where it waits for the rest of a head.
    waker: Cell<Option<Waker>>,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// A request.
    #[default]
    Idle,
    /// The rest of a head.
    Head,
    /// That the client takes its answers.
    Write,
    /// Whatever the slow path waits for, which has deadlines of its own.
    Slow,
    /// The head did not come in time: that this is said.
    Over,
}

impl Life {
    /// Connected, and nothing said yet: it has as long as one that stops in the middle.
    pub fn fresh(&self, worker: &Worker) {
        self.set(Stage::Idle, worker, worker.context.front.settings.head_timeout);
    }

    /// Waiting for a request.
    pub fn idle(&self, worker: &Worker) {
        self.set(Stage::Idle, worker, worker.context.front.settings.idle_timeout);
    }

    /// In the middle of a head.
    pub fn reading(&self, worker: &Worker) {
        self.set(Stage::Head, worker, worker.context.front.settings.head_timeout);
    }

    /// In the middle of an answer.
    pub fn writing(&self, worker: &Worker) {
        self.set(Stage::Write, worker, worker.context.front.settings.head_timeout);
    }

    /// On the slow path.
    pub fn slow(&self) {
        self.stage.set(Stage::Slow);
        self.deadline.set(u32::MAX);
    }

    /// Wakes this task when the head is late.
    pub fn wake_by(&self, waker: &Waker) {
        self.waker.set(Some(waker.clone()));
    }

    /// Whether the head is late.
    pub fn is_over(&self) -> bool {
        self.stage.get() == Stage::Over
    }

    fn set(&self, stage: Stage, worker: &Worker, time: Duration) {
        self.begin(stage, worker.tick.get(), ticks(time));
    }

    fn begin(&self, stage: Stage, now: u32, patience: u32) {
        self.stage.set(stage);
        self.deadline.set(now.saturating_add(patience));
    }

    /// Ends what is late at `tick`; false where nothing is. Who began a request is told.
    fn expire(&self, tick: u32, grace: u32) -> bool {
        if self.done.get() || self.deadline.get() > tick {
            return false;
        }
        match (self.stage.get(), self.waker.take()) {
            (Stage::Head, Some(waker)) => {
                self.stage.set(Stage::Over);
                self.deadline.set(tick.saturating_add(grace));
                waker.wake();
            }
            _ => self.end(),
        }
        true
    }

    fn end(&self) {
        self.done.set(true);
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// Marks a connection as done, and makes room for another, however its task ends.
struct Slot(Rc<Life>, #[expect(dead_code, reason = "it counts until it is dropped")] ConnectionPermit);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.done.set(true);
    }
}

/// Room for bytes that wait for a client.
pub struct Held<'w> {
    worker: &'w Worker,
    bytes: usize,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.worker.held.set(self.worker.held.get() - self.bytes);
    }
}

fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX)
}

/// Runs a worker until shutdown and its connections have drained.
pub fn run(front: &Arc<Front>, index: usize, sockets: Vec<TcpListener>, reader: Reader) {
    let context = WorkerContext::new(Arc::clone(front), front.metrics.worker(index), reader);
    let worker = Rc::new(Worker {
        index,
        pieces: Pieces::new(&front.settings),
        tail: RefCell::new(Tail::at(context.now.get())),
        context,
        tick: Cell::new(0),
        scratch: RefCell::new(vec![0; MAX_HEAD_BYTES].into_boxed_slice()),
        out: RefCell::new(Vec::with_capacity(MAX_HEAD_BYTES)),
        at: Cell::new(0),
        held: Cell::new(0),
        draining: Cell::new(false),
        lives: RefCell::default(),
    });
    // Two blocking threads: password hashes take some 20 ms of a core each, and visits come first.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .expect("the system has an epoll instance for each worker");
    LocalSet::new().block_on(&runtime, worker.serve(sockets));
    runtime.shutdown_background();
}

impl Worker {
    async fn serve(self: Rc<Self>, sockets: Vec<TcpListener>) {
        let mut accepting = tokio::task::JoinSet::new();
        for socket in sockets {
            accepting.spawn_local(Rc::clone(&self).accept(socket));
        }
        let mut ticking = tokio::task::spawn_local(Rc::clone(&self).tick());
        let drained = Rc::new(Notify::new());
        let flushes = self.index == 0;
        let (front, end) = (Arc::clone(&self.context.front), Rc::clone(&drained));
        let mut flushing = tokio::task::spawn_local(async move {
            match flushes {
                true => flush(front, end).await,
                false => end.notified().await,
            }
        });
        let front = &self.context.front;
        let days = front.settings.click_retention.filter(|_| flushes);
        let mut keeping = tokio::task::spawn_local(retention::keep(front.store.clone(), days));
        tokio::select! {
            biased;
            () = self.context.front.shutdown.wait() => {}
            // None of these ends by itself.
            Some(ended) = accepting.join_next() => panic!("accepting connections ended: {ended:?}"),
            ended = &mut ticking => panic!("the clock ended: {ended:?}"),
            ended = &mut flushing => panic!("flushing clicks ended: {ended:?}"),
            ended = &mut keeping => panic!("folding old clicks ended: {ended:?}"),
        }
        keeping.abort();
        self.draining.set(true);
        // Ends when every connection already in a backlog has been accepted.
        while accepting.join_next().await.is_some() {}
        self.drain().await;
        ticking.abort();
        self.context.enter_clicks();
        drained.notify_one();
        let _ = flushing.await;
    }

    /// Accepts until shutdown, then what had already arrived.
    async fn accept(self: Rc<Self>, socket: TcpListener) {
        let socket = match tokio::net::TcpListener::from_std(socket) {
            Ok(socket) => socket,
            Err(error) => return tracing::error!(%error, "cannot use a listening socket"),
        };
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = self.context.front.shutdown.wait() => break,
            };
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections just now");
                    self.context.metrics.accept_errors.add(1);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // The kernel is asked itself: the runtime may not have heard yet of those that wait. Not for ever: while there
        // is load, there is always one more.
        for _ in 0..DRAIN_ACCEPTS {
            match accept_now(&socket) {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if is_about_one_connection(&error) => {}
                Err(_) => return,
            }
        }
    }

    fn admit(self: &Rc<Self>, stream: tokio::net::TcpStream, peer: SocketAddr) {
        let source = self.context.front.settings.proxies.source(Some(peer.ip()));
        if source == Source::Nobody {
            return self.context.metrics.proxy_refused.add(1);
        }
        let Some(permit) = self.context.front.settings.connections.admit() else {
            return self.context.metrics.shed.add(1);
        };
        let mut lives = self.lives.borrow_mut();
        if lives.len() == lives.capacity() {
            lives.retain(|life| !life.done.get());
        }
        self.context.metrics.accepted.add(1);
        let life = Rc::new(Life::default());
        life.fresh(self);
        let (worker, slot) = (Rc::clone(self), Slot(Rc::clone(&life), permit));
        let task = if source == Source::ProxyHeader {
            tokio::task::spawn_local(async move { lane::run_proxied(&worker, stream, peer, &slot.0).await })
        } else {
            tokio::task::spawn_local(async move { lane::run(&worker, stream, peer, &slot.0).await })
        };
        let _ = life.task.set(task.abort_handle());
        lives.push(life);
    }

    async fn tick(self: Rc<Self>) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let last = self.context.now.get();
            self.context.tick();
            self.context.front.metrics.beats.beat(self.index);
            let tick = self.tick.get().saturating_add(1);
            self.tick.set(tick);
            let now = self.context.now.get();
            if now != last {
                *self.tail.borrow_mut() = Tail::at(now);
            }
            let grace = ticks(self.context.front.settings.head_timeout);
            self.lives.borrow_mut().retain(|life| {
                if life.expire(tick, grace) {
                    self.context.metrics.timed_out.add(1);
                }
                !life.done.get()
            });
            self.context.metrics.open.store(self.lives.borrow().len() as u64, Ordering::Relaxed);
        }
    }

    /// Takes room for bytes that wait for a client; none where there is none left.
    pub fn hold(&self, bytes: usize) -> Option<Held<'_>> {
        let held = self.held.get() + bytes;
        if held > HELD_BYTES / self.context.front.metrics.workers() {
            self.context.metrics.shed.add(1);
            return None;
        }
        self.held.set(held);
        Some(Held { worker: self, bytes })
    }

    /// Lets requests in flight end, then closes what is left.
    async fn drain(&self) {
        let grace = tokio::time::Instant::now() + DRAIN_GRACE;
        let deadline = tokio::time::Instant::now() + self.context.front.settings.drain_timeout;
        loop {
            let now = tokio::time::Instant::now();
            self.lives.borrow_mut().retain(|life| {
                if now >= deadline || (now >= grace && life.stage.get() == Stage::Idle) {
                    life.end();
                }
                !life.done.get()
            });
            if self.lives.borrow().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Flushes until the worker has drained. Apart from the tick, for a flush takes as long as the disk does.
async fn flush(front: Arc<Front>, drained: Rc<Notify>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FLUSH) => front.flush().await,
            () = drained.notified() => return,
        }
    }
}

/// One that waits already.
///
/// # Errors
/// `WouldBlock` where none does.
fn accept_now(socket: &tokio::net::TcpListener) -> io::Result<(tokio::net::TcpStream, SocketAddr)> {
    let (stream, peer) = acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    Ok((tokio::net::TcpStream::from_std(stream.into())?, peer.ok_or(io::ErrorKind::ConnectionAborted)?))
}

/// Whether an accept failed for one connection's sake (accept(2): errors of the new socket are passed
/// on), so that the next may be accepted at once.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ticks at which `life` is not over, from the first on.
    fn lasts(life: &Life) -> u32 {
        (1..).find(|&tick| life.expire(tick, 8)).expect("everything ends") - 1
    }

    #[test]
    fn a_connection_lasts_as_long_as_its_stage_may_and_no_longer() {
        let (head, idle) = (ticks(Duration::from_secs(10)), ticks(Duration::from_secs(75)));
        assert_eq!((head, idle), (40, 300), "four ticks a second");
        for (stage, patience) in [(Stage::Idle, idle), (Stage::Head, head), (Stage::Write, head)] {
            let life = Life::default();
            life.begin(stage, 0, patience);
            assert_eq!(lasts(&life), patience - 1, "{stage:?}");
            assert!(life.done.get(), "{stage:?}");
        }
        let slow = Life::default();
        slow.slow();
        assert!(!slow.expire(u32::MAX - 1, 8), "the slow path has deadlines of its own");
    }

    #[test]
    fn who_is_late_with_a_head_is_told_before_it_is_cut() {
        let life = Life::default();
        life.begin(Stage::Head, 0, 40);
        life.wake_by(futures_util::task::noop_waker_ref());
        assert_eq!(lasts(&life), 39);
        assert!(life.is_over() && !life.done.get());
        assert!(!life.expire(47, 8) && life.expire(48, 8), "it has that long to be told");
        assert!(life.done.get());
    }

    #[test]
    fn a_flush_is_on_its_way_within_a_second() {
        assert!(TICK + FLUSH <= Duration::from_secs(1));
    }
}
