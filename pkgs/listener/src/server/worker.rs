//! One worker: a runtime and its sockets, from the first connection to the last.

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

/// After so many tasks in a row it is looked for new events. A task here is a request, most often of less than a
/// microsecond, and a look is a system call; tokio's 61 are for tasks of any length.
const EVENT_INTERVAL: u32 = 255;

/// How often it is looked whether all connections have ended, when they are to.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// How long ending may take once it is over.
const CUT: Duration = Duration::from_millis(200);

/// The runtime of a worker.
pub fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().event_interval(EVENT_INTERVAL).enable_all().build()
}

/// What a worker does on a socket ended by itself, which takes the worker along.
#[derive(Debug)]
pub struct Ended;

/// Serves until draining has ended.
///
/// # Errors
/// When a socket is served no more though nobody asked for that.
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
        // Ends when every connection already in a backlog has been accepted, and those of QUIC have ended.
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
    // What is cut ends as soon as it is polled, and may have a word to say to its client.
    let _ = tokio::time::timeout(CUT, async { while serving.join_next().await.is_some() {} }).await;
    worker.flush_log();
    worker.heartbeats.done(worker.index);
    Ok(())
}
