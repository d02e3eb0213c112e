//! Sessions for writes and lists, as many as there may be at most.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connect::Connector;
use crate::error::Error;
use crate::session::Session;

/// Sessions that are lent out one by one; clones share them. They live on the runtime that first asked for each.
#[derive(Clone)]
pub struct Pool {
    connector: Connector,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Arc<Session>>>>,
    wait: Duration,
}

impl Pool {
    /// At most `size` sessions; who wants one waits for `wait`.
    pub fn new(connector: Connector, size: usize, wait: Duration) -> Self {
        Self { connector, permits: Arc::new(Semaphore::new(size)), idle: Arc::default(), wait }
    }

    /// A session that nobody else has.
    ///
    /// # Errors
    /// [`Error::Busy`] when all are taken for too long, or why none can be connected.
    pub async fn get(&self) -> Result<Pooled, Error> {
        let permit = tokio::time::timeout(self.wait, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit.map_err(|_| Error::Busy)?.map_err(|_| Error::Ended)?;
        loop {
            // Not held while it is waited for a connection.
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

/// A session of a pool; back in it when dropped, unless something was given up halfway.
pub struct Pooled {
    session: Arc<Session>,
    pool: Pool,
    // After the session is back.
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
