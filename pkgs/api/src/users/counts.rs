//! Counters of reads from the cache.

use std::sync::atomic::{AtomicU64, Ordering};

use service::metrics::LocalCounter;

use crate::thread;

/// How many threads have their own counters. Further threads share them, and occasionally lose a count.
const THREADS: usize = 64;

/// The counters of one thread.
#[derive(Default)]
struct Thread {
    hits: LocalCounter,
    misses: LocalCounter,
}

/// Counts reads by id: answered from the cache, not in it, and answered from it while the database is away.
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

    /// Counts a read that was answered because the database is away. It is rare, so all threads share the counter.
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
