//! What is left of the links that take a number of clicks.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the counter of a click limit outlives the entries that use it: well beyond the next flush, so
/// that a reloaded entry never starts from a count that lags behind.
const COUNTER_KEPT: Duration = Duration::from_secs(60);

/// Clicks so far of the links that have a limit, one counter a link for all workers and all
/// reloads of its entry.
#[derive(Default)]
pub(super) struct ClickLimits(Mutex<LiveCounters>);

#[derive(Default)]
struct LiveCounters {
    counters: HashMap<i64, (Arc<AtomicU64>, Instant)>,
    sweep_at: usize,
}

impl ClickLimits {
    /// The counter of a link, starting from what the store has where there is none.
    pub(super) fn counter(&self, link: i64, stored: u64) -> Arc<AtomicU64> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((counter, used)) = live.counters.get_mut(&link) {
            *used = Instant::now();
            return Arc::clone(counter);
        }
        // Sweep each time the map has doubled. What was counted is in the store by the time it is forgotten.
        if live.counters.len() >= live.sweep_at {
            live.counters
                .retain(|_, (counter, used)| Arc::strong_count(counter) > 1 || used.elapsed() < COUNTER_KEPT);
            live.sweep_at = 2 * live.counters.len().max(512);
        }
        let counter = Arc::new(AtomicU64::new(stored));
        live.counters.insert(link, (Arc::clone(&counter), Instant::now()));
        counter
    }
}
