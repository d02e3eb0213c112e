//! What blocks, on threads of its own: a worker's runtime would make one for each.

use tokio::sync::{Semaphore, oneshot};

use crate::store::{Error, carrying};

/// How much is done at once. Hashing a password takes 19 MiB and a CPU.
static PLACES: Semaphore = Semaphore::const_new(12);

/// Does something where it may block, once there is a place for it.
///
/// # Errors
/// Where it ended in a panic.
pub(super) async fn block<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let place = PLACES.acquire().await.map_err(|_| Error::Closed)?;
    let (sender, done) = oneshot::channel();
    aside(Box::new(move || {
        let answer = work();
        // Kept until it is done, even where the request was given up.
        drop(place);
        let _ = sender.send(answer);
    }));
    done.await.map_err(|_| Error::Closed)
}

/// Does something on a thread that may block, with the calling task's comment. One place for all: a task is some twenty functions,
/// which would be compiled for each thing done.
pub(super) fn aside(work: Box<dyn FnOnce() + Send>) {
    tokio::task::spawn_blocking(carrying(work));
}
