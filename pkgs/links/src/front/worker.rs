//! One worker: a thread, a single-threaded runtime, its sockets and everything it need not share.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, LocalSet};

use crate::cache::Near;
use crate::clicks::Counter;
use crate::store::Reader;
use crate::when::Timestamp;

use super::answer::{DATE_BYTES, Pieces};
use super::metrics::WorkerMetrics;
use super::{Front, MAX_HEAD_BYTES, handover, lane};

/// How often a worker looks at the clock, enters its clicks in the ledger and closes what has waited too
/// long.
const TICK: Duration = Duration::from_millis(250);

/// How often the first worker hands the ledger to the store. Together with the tick before it, a click is on
/// its way to the store within a second.
const FLUSH: Duration = Duration::from_millis(750);

/// How long accepting pauses when the process is out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// At shutdown, an idle connection is kept this long, so that a request already on its way is answered.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// What the worker last read from the clock.
#[derive(Clone, Copy)]
pub struct Clock {
    /// The present, at most a tick old.
    pub now: Timestamp,
    /// Ticks since the worker started.
    pub tick: u32,
}

/// Everything one worker has for itself.
pub struct Worker {
    index: usize,
    pub front: Arc<Front>,
    pub metrics: Arc<WorkerMetrics>,
    pub reader: Reader,
    pub pieces: Pieces,
    pub near: RefCell<Near>,
    pub counter: RefCell<Counter>,
    pub clock: Cell<Clock>,
    /// What answers end with: the date, then `connection: close` where they close.
    pub tail: RefCell<Tail>,
    /// Received bytes, between a read and the answer to it; never across an await.
    pub scratch: RefCell<Box<[u8]>>,
    /// Answers, between a read and the write that follows; never across an await.
    pub out: RefCell<Vec<u8>>,
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
    idle: Cell<bool>,
    done: Cell<bool>,
    task: OnceCell<AbortHandle>,
}

impl Life {
    /// Connected, and nothing said yet: it has as long as one that stops in the middle.
    pub fn fresh(&self, worker: &Worker) {
        self.idle.set(true);
        self.set(worker, worker.front.settings.head_timeout);
    }

    /// Waiting for a request.
    pub fn idle(&self, worker: &Worker) {
        self.idle.set(true);
        self.set(worker, worker.front.settings.idle_timeout);
    }

    /// In the middle of a head or an answer.
    pub fn busy(&self, worker: &Worker) {
        self.idle.set(false);
        self.set(worker, worker.front.settings.head_timeout);
    }

    /// Handed over: actix-web has timeouts of its own.
    pub fn handed_over(&self) {
        self.idle.set(false);
        self.deadline.set(u32::MAX);
    }

    fn set(&self, worker: &Worker, time: Duration) {
        self.deadline.set(worker.clock.get().tick.saturating_add(ticks(time)));
    }

    fn end(&self) {
        self.done.set(true);
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX)
}

/// Runs a worker until shutdown and its connections have drained.
pub fn run(front: &Arc<Front>, index: usize, sockets: Vec<TcpListener>, reader: Reader) {
    let now = Timestamp::now();
    let worker = Rc::new(Worker {
        index,
        front: Arc::clone(front),
        metrics: front.metrics.worker(index),
        reader,
        pieces: Pieces::new(&front.settings),
        near: RefCell::new(Near::new(Arc::clone(&front.cache))),
        counter: RefCell::new(Counter::new(now.day())),
        clock: Cell::new(Clock { now, tick: 0 }),
        tail: RefCell::new(Tail::at(now)),
        scratch: RefCell::new(vec![0; MAX_HEAD_BYTES].into_boxed_slice()),
        out: RefCell::new(Vec::with_capacity(MAX_HEAD_BYTES)),
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
        let handover = Rc::new(handover::Handover::new(&self).await);
        let mut accepting = tokio::task::JoinSet::new();
        for socket in sockets {
            accepting.spawn_local(Rc::clone(&self).accept(socket, Rc::clone(&handover)));
        }
        let ticking = tokio::task::spawn_local(Rc::clone(&self).tick());
        let drained = Rc::new(Notify::new());
        let flushing = (self.index == 0)
            .then(|| tokio::task::spawn_local(flush(Arc::clone(&self.front), Rc::clone(&drained))));
        self.front.shutdown.wait().await;
        self.draining.set(true);
        // Ends when every connection already in a backlog has been accepted.
        while accepting.join_next().await.is_some() {}
        self.drain().await;
        ticking.abort();
        self.enter_clicks();
        drained.notify_one();
        if let Some(flushing) = flushing {
            let _ = flushing.await;
        }
    }

    /// Accepts until shutdown, then what had already arrived.
    async fn accept(self: Rc<Self>, socket: TcpListener, handover: Rc<handover::Handover>) {
        let socket = match tokio::net::TcpListener::from_std(socket) {
            Ok(socket) => socket,
            Err(error) => return tracing::error!(%error, "cannot use a listening socket"),
        };
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = self.front.shutdown.wait() => return,
            };
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer, &handover),
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections just now");
                    self.metrics.accept_errors.add(1);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(
        self: &Rc<Self>,
        stream: tokio::net::TcpStream,
        peer: std::net::SocketAddr,
        handover: &Rc<handover::Handover>,
    ) {
        let mut lives = self.lives.borrow_mut();
        if lives.len() >= self.front.settings.connections {
            lives.retain(|life| !life.done.get());
        }
        if lives.len() >= self.front.settings.connections {
            self.metrics.shed.add(1);
            return;
        }
        self.metrics.accepted.add(1);
        let life = Rc::new(Life::default());
        life.fresh(self);
        let (worker, handover, own) = (Rc::clone(self), Rc::clone(handover), Rc::clone(&life));
        let task = tokio::task::spawn_local(async move {
            lane::run(&worker, &handover, stream, peer, &own).await;
            own.done.set(true);
        });
        let _ = life.task.set(task.abort_handle());
        lives.push(life);
    }

    async fn tick(self: Rc<Self>) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.metrics.ticks.add(1);
            let now = Timestamp::now();
            let last = self.clock.get();
            let tick = last.tick.saturating_add(1);
            self.clock.set(Clock { now, tick });
            if now != last.now {
                *self.tail.borrow_mut() = Tail::at(now);
            }
            self.lives.borrow_mut().retain(|life| {
                if !life.done.get() && life.deadline.get() <= tick {
                    self.metrics.timed_out.add(1);
                    life.end();
                }
                !life.done.get()
            });
            self.metrics.open.store(self.lives.borrow().len() as u64, Ordering::Relaxed);
            if let Err(error) = self.reader.release() {
                tracing::warn!(%error, "cannot let go of a snapshot");
            }
            self.enter_clicks();
        }
    }

    /// Enters what this worker has counted in the ledger of all.
    fn enter_clicks(&self) {
        if let Some(batch) = self.counter.borrow_mut().take(self.clock.get().now.day()) {
            self.front.enter(batch);
        }
    }

    /// Lets requests in flight end, then closes what is left.
    async fn drain(&self) {
        let grace = tokio::time::Instant::now() + DRAIN_GRACE;
        let deadline = tokio::time::Instant::now() + self.front.settings.drain_timeout;
        loop {
            let now = tokio::time::Instant::now();
            self.lives.borrow_mut().retain(|life| {
                if now >= deadline || (now >= grace && life.idle.get()) {
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

/// Whether an accept failed for one connection's sake (accept(2): errors of the new socket are passed
/// on), so that the next may be accepted at once.
fn is_about_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::Interrupted)
}
