//! Blocking work, on shared threads: each worker's runtime would otherwise make its own.

use tokio::sync::{Semaphore, oneshot};

use crate::store::{Error, carrying};

/// How much runs at once. Hashing a password takes 19 MiB and a CPU.
static PLACES: Semaphore = Semaphore::const_new(12);

/// Runs work that may block, once there is a place for it.
///
/// # Errors
/// When it panicked.
pub(super) async fn block<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let place = PLACES.acquire().await.map_err(|_| Error::Closed)?;
    let (sender, done) = oneshot::channel();
    aside(Box::new(move || {
        let answer = work();
        // Kept until the work is done, even if the request was given up.
        drop(place);
        let _ = sender.send(answer);
    }));
    done.await.map_err(|_| Error::Closed)
}

/// Runs work on a thread that may block, with the calling task's trace comment. A single function for all kinds of
/// work: a task is some twenty functions, which would otherwise be compiled for each.
pub(super) fn aside(work: Box<dyn FnOnce() + Send>) {
    tokio::task::spawn_blocking(carrying(work));
}
