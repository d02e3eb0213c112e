//! Blocking work, with one limit for all workers: each worker's runtime has its own pool of blocking threads.

use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::store::{Error, carrying};

/// How many pieces of work run at once. Hashing a password takes 19 MiB and a CPU.
static PLACES: Semaphore = Semaphore::const_new(12);

/// How long work waits for one of [`PLACES`]. It keeps its request in memory.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs work that may block, once one of [`PLACES`] is free.
///
/// # Errors
/// [`Error::Busy`] if none is free in time, [`Error::Closed`] when the work panicked.
pub(super) async fn block<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let place = timeout(PATIENCE, PLACES.acquire()).await.map_err(|_| Error::Busy)?;
    let place = place.map_err(|_| Error::Closed)?;
    let (sender, done) = oneshot::channel();
    aside(Box::new(move || {
        let answer = work();
        // The place is kept until the work is done, even if the request was cancelled.
        drop(place);
        let _ = sender.send(answer);
    }));
    done.await.map_err(|_| Error::Closed)
}

/// Runs work on a thread that may block, with the calling task's trace comment. The work is boxed, so that this
/// function is compiled only once: a task is some twenty functions, which would otherwise be compiled for each kind of
/// work.
pub(super) fn aside(work: Box<dyn FnOnce() + Send>) {
    tokio::task::spawn_blocking(carrying(work));
}
