//! Which entries are out of date.

use std::sync::atomic::{AtomicU32, Ordering};

/// Stripes of the generation table. An edit makes one entry in 4,096 reload, besides its own.
const STRIPES: usize = 1 << 12;

/// When each code last changed: a counter a stripe of codes, and one for all.
pub(super) struct Generations {
    stripes: Box<[AtomicU32]>,
    all: AtomicU32,
}

impl Generations {
    pub(super) fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(), all: AtomicU32::new(0) }
    }

    /// Both counters only grow, so their sum changes with either.
    pub(super) fn stamp(&self, hash: u64) -> u32 {
        let stripe = self.stripes[hash as usize % STRIPES].load(Ordering::Acquire);
        stripe.wrapping_add(self.all.load(Ordering::Acquire))
    }

    pub(super) fn raise(&self, hash: u64) {
        self.stripes[hash as usize % STRIPES].fetch_add(1, Ordering::Release);
    }

    pub(super) fn raise_all(&self) {
        self.all.fetch_add(1, Ordering::Release);
    }
}
