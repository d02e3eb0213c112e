//! A worker: a runtime and its sockets, from the first connection to the last.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use service::panics::Panic;
use tokio::runtime::Runtime;
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::http_service::HttpService;
use crate::lifecycle::TICK;
use crate::lifecycle::drain::Phase;
use crate::quic;
use crate::worker_context::WorkerContext;

use super::accept;
use super::sockets::WorkerSockets;

/// After this many tasks in a row, the runtime checks for new events. A task here is a request, usually of less than a
/// microsecond, and a check is a system call; tokio's default of 61 is for tasks of any length.
const EVENT_INTERVAL: u32 = 255;

/// How often to check whether all connections have ended, while draining.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// How long cut connections have to end.
const CUT: Duration = Duration::from_millis(200);

/// The runtime of a worker.
pub fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().event_interval(EVENT_INTERVAL).enable_all().build()
}

/// The error of a socket's loop that ended unexpectedly, which ends the worker.
#[derive(Debug)]
pub struct Ended;

/// Serves until draining has ended.
///
/// # Errors
/// When a socket is no longer served although nobody asked for that.
pub async fn run(
    worker: Arc<WorkerContext>,
    sockets: WorkerSockets,
    service: impl HttpService,
) -> Result<(), Ended> {
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
    worker.registry.drain();
    let ended = async {
        // Ends once every connection that was in a backlog is accepted, and QUIC's connections have ended.
        while serving.join_next().await.is_some() {}
        while worker.registry.open() > 0 {
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
    worker.registry.cut();
    // A cut connection ends when it is next polled, and may still have something to send.
    let _ = tokio::time::timeout(CUT, async { while serving.join_next().await.is_some() {} }).await;
    worker.flush_log();
    worker.heartbeats.done(worker.index);
    Ok(())
}
