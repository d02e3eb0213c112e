//! Stamps that tell which entries are out of date.

use std::sync::atomic::{AtomicU32, Ordering};

/// Set while changes may be unknown: every stamp is then outdated.
const STALE: u32 = 1 << 31;

/// When each code last changed: a counter per stripe of codes, and one for all.
pub(super) struct Generations {
    stripes: Box<[AtomicU32]>,
    /// A counter, and the flag [`STALE`].
    all: AtomicU32,
}

impl Generations {
    /// Creates `stripes` counters, a power of two. An edit also reloads one in `stripes` of the other entries.
    pub(super) fn new(stripes: usize) -> Self {
        assert!(stripes.is_power_of_two(), "stripes are told apart by bits of a hash");
        Self { stripes: (0..stripes).map(|_| AtomicU32::new(0)).collect(), all: AtomicU32::new(0) }
    }

    /// The current stamp of a hash. Both counters only grow, so their sum changes with either.
    pub(super) fn stamp(&self, hash: u64) -> u32 {
        let stripe = self.stripe(hash).load(Ordering::Acquire);
        stripe.wrapping_add(self.all.load(Ordering::Acquire))
    }

    /// The stamp that is current if nothing has changed since the last contact with the database.
    pub(super) fn last_stamp(&self, hash: u64) -> u32 {
        let stripe = self.stripe(hash).load(Ordering::Acquire);
        stripe.wrapping_add(self.all.load(Ordering::Acquire) & !STALE)
    }

    pub(super) fn raise(&self, hash: u64) {
        self.stripe(hash).fetch_add(1, Ordering::Release);
    }

    pub(super) fn raise_all(&self) {
        self.all.fetch_add(1, Ordering::Release);
    }

    /// With `true`, makes all entries outdated. With `false`, makes those valid again that were current at the last
    /// contact with the database.
    pub(super) fn set_stale(&self, stale: bool) {
        if stale {
            self.all.fetch_or(STALE, Ordering::Release);
        } else {
            self.all.fetch_and(!STALE, Ordering::Release);
        }
    }

    fn stripe(&self, hash: u64) -> &AtomicU32 {
        &self.stripes[hash as usize & (self.stripes.len() - 1)]
    }
}
