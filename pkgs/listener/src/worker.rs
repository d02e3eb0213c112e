//! One worker: a runtime, its sockets and everything it need not share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use service::access_log::Lines;
use service::panics::Panic;
use service::ready::Heartbeats;
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::accept;
use crate::config::{Config, Runtime};
use crate::drain::{Drain, Phase};
use crate::life::{Lives, TICK};
use crate::limits::{Answers, Bodies, Connections, Reserved};
use crate::metrics::{Metrics, WorkerMetrics};
use crate::quic;
use crate::refusal::Refusal;
use crate::service_trait::HttpService;
use crate::sockets::Sockets;
use crate::tls::Tls;

/// What is received of a body that is not announced and has no meaning, as with GET (RFC 9110, section 9.3.1), in bytes.
/// By HTTP/2 and 3, the end of a request that comes by itself looks like one.
const MEANINGLESS_BYTES: u64 = 16 * 1024;

/// After so many tasks in a row it is looked for new events. A task here is a request, most often of less than a
/// microsecond, and a look is a system call; tokio's 61 are for tasks of any length.
const EVENT_INTERVAL: u32 = 255;

/// How often it is looked whether all connections have ended, when they are to.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// How long ending may take once it is over.
const CUT: Duration = Duration::from_millis(200);

/// What the connections of a worker share.
#[derive(Debug)]
pub struct Worker {
    /// Its number.
    pub index: usize,
    /// How the listener behaves.
    pub config: Arc<Config>,
    /// The connections of all workers.
    pub connections: Arc<Connections>,
    /// The request bodies of all workers.
    pub bodies: Arc<Bodies>,
    /// What of the answers of all workers waits for clients.
    pub answers: Arc<Answers>,
    /// What all workers count.
    pub metrics: Metrics,
    /// Whether to go on.
    pub drain: Drain,
    /// Its connections by TCP and Unix sockets, and the time.
    pub lives: Lives,
    /// Certificates.
    pub tls: Option<Tls>,
    /// That all workers go on.
    pub heartbeats: Heartbeats,
    /// Its lines of the access log, where there is one.
    pub log: Option<Lines>,
}

impl Worker {
    /// What this worker counts.
    pub fn counts(&self) -> &WorkerMetrics {
        self.metrics.worker(self.index)
    }

    /// Room for a request's body of so many bytes, or of an unknown number of them. It may not have more.
    ///
    /// # Errors
    /// When it is too long, or too many are under way.
    pub fn reserve(&self, method: &Method, bytes: Option<u64>) -> Result<Reserved, Refusal> {
        let most = self.config.limits.body_bytes;
        if bytes.is_some_and(|bytes| bytes > most) {
            return Err(Refusal::BodyTooLarge);
        }
        let unannounced = if method.is_safe() { most.min(MEANINGLESS_BYTES) } else { most };
        self.bodies.reserve(bytes.unwrap_or(unannounced)).ok_or_else(|| {
            self.counts().shed_bodies.increment();
            Refusal::Busy
        })
    }

    fn flush_log(&self) {
        if let Some(lines) = &self.log {
            lines.flush();
        }
    }

    /// Ends the connection that has waited for its client for longest, where there is one.
    pub fn make_room(&self) -> bool {
        let made = self.lives.make_room();
        if made {
            self.counts().timed_out.increment();
        }
        made
    }

    /// Sees to deadlines, hands on what was logged, and shows that it goes on. To be called every [`TICK`].
    fn tick(&self) {
        self.lives.tick();
        self.flush_log();
        self.heartbeats.beat(self.index);
    }
}

/// The runtime of a worker.
pub fn runtime(kind: &Runtime) -> io::Result<tokio::runtime::Runtime> {
    match kind {
        Runtime::PerCore(_) => {
            tokio::runtime::Builder::new_current_thread().event_interval(EVENT_INTERVAL).enable_all().build()
        }
        Runtime::MultiThread(threads) => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(service::workers::count(*threads))
            .thread_name("listener")
            .enable_all()
            .build(),
    }
}

/// What a worker does on a socket ended by itself, which takes the worker along.
#[derive(Debug)]
pub struct Ended;

/// Serves until draining has ended.
///
/// # Errors
/// When a socket is served no more though nobody asked for that.
pub async fn run(worker: Arc<Worker>, sockets: Sockets, service: impl HttpService) -> Result<(), Ended> {
    let mut serving = JoinSet::new();
    for socket in sockets.stream {
        serving.spawn(accept::run(Arc::clone(&worker), socket, service.clone()));
    }
    for socket in sockets.quic {
        serving.spawn(quic::serve(Arc::clone(&worker), socket, service.clone()));
    }
    let mut drain = worker.drain.clone();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => worker.tick(),
            _ = drain.draining() => break,
            Some(ended) = serving.join_next() => {
                if drain.phase() != Phase::Serving {
                    break;
                }
                if let Err(panic) = ended.map_err(JoinError::into_panic) {
                    Panic::new(panic).log("worker", "accepting");
                }
                return Err(Ended);
            }
        }
    }
    worker.lives.drain();
    let ended = async {
        // Ends when every connection already in a backlog has been accepted, and those of QUIC have ended.
        while serving.join_next().await.is_some() {}
        while worker.lives.open() > 0 {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    let ticking = async {
        loop {
            ticks.tick().await;
            worker.tick();
        }
    };
    tokio::select! {
        () = ended => {}
        () = ticking => {}
        () = drain.cut() => {}
    }
    worker.lives.cut();
    // What is cut ends as soon as it is polled, and may have a word to say to its client.
    let _ = tokio::time::timeout(CUT, async { while serving.join_next().await.is_some() {} }).await;
    worker.flush_log();
    worker.heartbeats.done(worker.index);
    Ok(())
}
