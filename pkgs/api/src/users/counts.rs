//! How often a read was answered from the cache.

use std::sync::atomic::{AtomicU64, Ordering};

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
pub struct Counts {
    threads: Box<[Thread]>,
    lingering: AtomicU64,
}

impl Counts {
    pub fn new() -> Self {
        Self { threads: (0..THREADS).map(|_| Thread::default()).collect(), lingering: AtomicU64::new(0) }
    }

    /// Counts a read.
    #[inline]
    pub fn count(&self, hit: bool) {
        let own = &self.threads[thread::number() % THREADS];
        if hit { own.hits.add(1) } else { own.misses.add(1) }
    }

    /// Counts a read that was answered because the database is away; rare enough for all threads to share.
    pub fn count_lingering(&self) {
        self.lingering.fetch_add(1, Ordering::Relaxed);
    }

    pub fn lingering(&self) -> u64 {
        self.lingering.load(Ordering::Relaxed)
    }

    pub fn hits(&self) -> u64 {
        self.threads.iter().map(|thread| thread.hits.get()).sum()
    }

    pub fn misses(&self) -> u64 {
        self.threads.iter().map(|thread| thread.misses.get()).sum()
    }
}
