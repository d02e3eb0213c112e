//! Sessions for writes and lists, up to a limit.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connect::Connector;
use crate::error::Error;
use crate::session::Session;

/// Sessions that are lent to one caller at a time. Clones share them. Each session lives on the runtime that first
/// asked for it.
#[derive(Clone)]
pub struct Pool {
    connector: Connector,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Arc<Session>>>>,
    wait: Duration,
}

impl Pool {
    /// At most `size` sessions. A caller that needs one waits up to `wait`.
    pub fn new(connector: Connector, size: usize, wait: Duration) -> Self {
        Self { connector, permits: Arc::new(Semaphore::new(size)), idle: Arc::default(), wait }
    }

    /// A session for the caller alone.
    ///
    /// # Errors
    /// [`Error::Busy`] if all are in use for too long, or the error of connecting.
    pub async fn get(&self) -> Result<Pooled, Error> {
        let permit = tokio::time::timeout(self.wait, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit.map_err(|_| Error::Busy)?.map_err(|_| Error::Ended)?;
        loop {
            // The list is not locked while connecting.
            let idle = self.idle().pop();
            match idle {
                Some(session) if self.connector.is_current(&session) => return Ok(self.lent(session, permit)),
                Some(_) => {}
                None => return Ok(self.lent(self.connector.connect().await?, permit)),
            }
        }
    }

    fn lent(&self, session: Arc<Session>, permit: OwnedSemaphorePermit) -> Pooled {
        Pooled { session, pool: self.clone(), _permit: permit }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Session>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session from a pool. It is returned when dropped, unless a query was abandoned before its answer.
pub struct Pooled {
    session: Arc<Session>,
    pool: Pool,
    // The permit is released after the session is returned.
    _permit: OwnedSemaphorePermit,
}

impl Deref for Pooled {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if self.pool.connector.is_current(&self.session) && self.session.is_idle() {
            self.pool.idle().push(Arc::clone(&self.session));
        }
    }
}
