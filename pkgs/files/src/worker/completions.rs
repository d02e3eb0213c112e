//! Results of other threads' work for a worker. The queue's eventfd wakes the worker's loop.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use listener::Offloaded;
use origin::Fetched;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::disk::ring::Token;
use crate::response::pending::WorkOutcome;
use crate::stream::pool::Block;

/// Completed work.
#[derive(Debug)]
pub enum Completed {
    /// The result of what an answer waited for.
    Work(WorkOutcome),
    /// The cold part of a file is now in memory, as far as the file reaches.
    Warm,
    /// The next block of a listing.
    Block(Block),
    /// The result of asking the origin for a part of a file.
    Fetched(Result<Fetched, origin::Error>),
}

/// The queue of a worker's completions.
#[derive(Debug)]
pub struct CompletionQueue {
    inner: Mutex<Completions>,
    wakeup: OwnedFd,
}

/// The content of a worker's queue.
#[derive(Debug, Default)]
pub struct Completions {
    /// Completed work, each with the token of its connection.
    pub done: Vec<(Token, Completed)>,
    /// Connections handed over by the TLS listener.
    pub arrived: Vec<Offloaded>,
}

impl CompletionQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// When there is no file descriptor for its eventfd.
    pub fn new() -> Result<Self, Errno> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inner: Mutex::default(), wakeup })
    }

    /// The eventfd that wakes the worker.
    pub fn wakeup(&self) -> impl AsFd {
        &self.wakeup
    }

    /// Wakes the worker, with or without a completion.
    pub fn wake(&self) {
        // The write fails only if the counter is full because nobody reads it.
        let _ = write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    /// Takes the content of the queue.
    pub fn take(&self) -> Completions {
        // The eventfd is read first: what is added after that is either taken here, or wakes the worker again.
        let _ = read(&self.wakeup, &mut [0; 8]);
        std::mem::take(&mut *self.lock())
    }

    /// Whether no connection has arrived.
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

    /// Wakes the worker only if the queue was empty. Otherwise the worker was woken already, and will take everything.
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
