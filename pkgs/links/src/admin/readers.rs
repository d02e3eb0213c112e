//! Read connections that requests share, for use on threads that may block.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::blocking::aside;
use crate::store::{Error, Reader, Store};

/// How long a request waits for a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// A fixed number of read connections.
pub(super) struct ReaderPool {
    idle: Arc<Mutex<Vec<Reader>>>,
    /// One permit per reader. A task with a permit always finds an idle reader.
    permits: Arc<Semaphore>,
}

impl ReaderPool {
    pub(super) fn open(store: &Store, count: usize) -> Result<Self, Error> {
        let idle = (0..count).map(|_| store.reader()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { idle: Arc::new(Mutex::new(idle)), permits: Arc::new(Semaphore::new(count)) })
    }

    /// Runs a query on a thread that may block.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = match timeout(PATIENCE, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            _ => return Err(Error::Busy),
        };
        let idle = self.idle.clone();
        // The reader is returned when the query ends, even if the request was cancelled.
        let (sender, answer) = oneshot::channel();
        aside(Box::new(move || {
            let Some(reader) = lock(&idle).pop() else {
                let _ = sender.send(Err(Error::Busy));
                return;
            };
            let answer = query(&reader);
            lock(&idle).push(reader);
            drop(permit);
            let _ = sender.send(answer);
        }));
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

fn lock(idle: &Mutex<Vec<Reader>>) -> std::sync::MutexGuard<'_, Vec<Reader>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
