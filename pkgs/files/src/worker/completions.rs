//! The results that other threads have for a worker. The queue's eventfd wakes the worker's loop.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use listener::Offloaded;
use origin::Fetched;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::disk::ring::Token;
use crate::response::pending::WorkOutcome;
use crate::stream::pool::Block;

/// What is done.
#[derive(Debug)]
pub enum Completed {
    /// What an answer waited for.
    Work(WorkOutcome),
    /// What was cold is in memory, as far as the file has it.
    Warm,
    /// The next block of a listing.
    Block(Block),
    /// What came of asking the origin for a part of a file.
    Fetched(Result<Fetched, origin::Error>),
}

/// Where a worker finds what is done for it.
#[derive(Debug)]
pub struct CompletionQueue {
    inner: Mutex<Completions>,
    wakeup: OwnedFd,
}

/// What has come for a worker.
#[derive(Debug, Default)]
pub struct Completions {
    /// What is done, and for whom.
    pub done: Vec<(Token, Completed)>,
    /// Connections that come from the TLS listener.
    pub arrived: Vec<Offloaded>,
}

impl CompletionQueue {
    /// An empty one.
    ///
    /// # Errors
    /// When there is no file descriptor for its eventfd.
    pub fn new() -> Result<Self, Errno> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inner: Mutex::default(), wakeup })
    }

    /// What wakes the worker.
    pub fn wakeup(&self) -> impl AsFd {
        &self.wakeup
    }

    /// Wakes the worker, with or without a completion.
    pub fn wake(&self) {
        // It can only fail where the counter is full, and nobody listens.
        let _ = write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    /// Takes what is there.
    pub fn take(&self) -> Completions {
        // In this order: what is added after the reading is found here, or wakes the worker again.
        let _ = read(&self.wakeup, &mut [0; 8]);
        std::mem::take(&mut *self.lock())
    }

    /// Whether nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.lock().arrived.is_empty()
    }

    /// Adds a completion, and wakes the worker.
    pub fn push(&self, token: Token, done: Completed) {
        self.add(|inner| inner.done.push((token, done)));
    }

    /// Adds a connection, and wakes the worker.
    pub fn push_connection(&self, connection: Offloaded) {
        self.add(|inner| inner.arrived.push(connection));
    }

    /// Wakes the worker where what it is to find is the first: it has been woken for what is there, and takes all.
    fn add(&self, add: impl FnOnce(&mut Completions)) {
        let mut inner = self.lock();
        let is_first = inner.done.is_empty() && inner.arrived.is_empty();
        add(&mut inner);
        drop(inner);
        if is_first {
            self.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Completions> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
