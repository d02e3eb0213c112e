//! How often a read was answered from the cache.

use service::metrics::LocalCounter;

use crate::thread;

/// Threads that count on their own. Beyond, some share, and then a count is lost now and then.
const THREADS: usize = 64;

/// What one thread counts.
#[derive(Default)]
struct Thread {
    hits: LocalCounter,
    misses: LocalCounter,
}

/// Reads by id, those answered from the cache and those that were not.
pub struct Counts(Box<[Thread]>);

impl Counts {
    pub fn new() -> Self {
        Self((0..THREADS).map(|_| Thread::default()).collect())
    }

    /// Counts a read.
    #[inline]
    pub fn count(&self, hit: bool) {
        let own = &self.0[thread::number() % THREADS];
        if hit { own.hits.add(1) } else { own.misses.add(1) }
    }

    pub fn hits(&self) -> u64 {
        self.0.iter().map(|thread| thread.hits.get()).sum()
    }

    pub fn misses(&self) -> u64 {
        self.0.iter().map(|thread| thread.misses.get()).sum()
    }
}
