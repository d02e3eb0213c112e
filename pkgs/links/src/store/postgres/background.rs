//! The runtime that sessions and the feed live on: those of the callers come and go.

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::store::Error;

/// Threads that write and read lists, and hear of changes.
const THREADS: usize = 2;

/// The runtime; it ends when dropped.
pub struct Background(Option<Runtime>);

impl Background {
    pub fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("store")
            .enable_all()
            .build();
        Ok(Self(Some(runtime.map_err(|error| Error::Postgres(error.to_string()))?)))
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until dropped")
    }

    pub fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime().spawn(work)
    }

    /// Waits for work, on a thread that may.
    pub fn block_on<F: Future>(&self, work: F) -> F::Output {
        self.runtime().block_on(work)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting is not allowed on an async thread, and there is nothing to wait for.
            runtime.shutdown_background();
        }
    }
}
