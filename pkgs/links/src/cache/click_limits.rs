//! The remaining clicks of links with a limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::LEASED;

/// How long the counter of a limited link outlives its cache entries: well beyond the next flush, so that a reloaded
/// entry never starts from an outdated count.
const COUNTER_KEPT: Duration = Duration::from_secs(60);

/// The grants to take back.
#[derive(Clone, Copy, Debug)]
pub enum Grants {
    /// Those of this link.
    Of(i64),
    /// Those of links that were granted nothing for this long.
    Idle(Duration),
}

/// The clicks so far of links with a limit. Each link has one counter, for all workers and all reloads of its entry.
#[derive(Default)]
pub(super) struct ClickLimits(Mutex<LiveCounters>);

#[derive(Default)]
struct LiveCounters {
    counters: HashMap<i64, (Arc<AtomicU64>, Instant)>,
    /// The limits under which clicks were granted.
    limits: HashMap<i64, u64>,
    sweep_at: usize,
}

impl ClickLimits {
    /// The counter of a link. It is never below the store's count: clicks while the link had no limit are only there.
    pub(super) fn counter(&self, link: i64, stored: u64) -> Arc<AtomicU64> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((counter, used)) = live.counters.get_mut(&link) {
            *used = Instant::now();
            if stored != LEASED {
                counter.fetch_max(stored, Ordering::Relaxed);
            }
            return Arc::clone(counter);
        }
        // Sweep each time the map has doubled. By the time a counter is removed, its clicks are in the store.
        if live.counters.len() >= live.sweep_at {
            live.counters
                .retain(|_, (counter, used)| Arc::strong_count(counter) > 1 || used.elapsed() < COUNTER_KEPT);
            let LiveCounters { counters, limits, .. } = &mut *live;
            limits.retain(|link, _| counters.contains_key(link));
            live.sweep_at = 2 * live.counters.len().max(512);
        }
        let counter = Arc::new(AtomicU64::new(stored));
        live.counters.insert(link, (Arc::clone(&counter), Instant::now()));
        counter
    }

    /// Records a limit. Returns whether it differs from the recorded one.
    pub(super) fn changed(&self, link: i64, most: Option<u64>) -> bool {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is recorded for links without a limit, which most links are.
        if most.is_none() && live.limits.is_empty() {
            return false;
        }
        let before = match most {
            Some(most) => live.limits.insert(link, most),
            None => live.limits.remove(&link),
        };
        before.is_some() && before != most
    }

    /// Adds clicks to a [`LEASED`] link.
    pub(super) fn grant(&self, link: i64, clicks: u64) {
        self.counter(link, LEASED).fetch_sub(clicks, Ordering::Relaxed);
    }

    /// Takes the remaining clicks of [`LEASED`] links.
    pub(super) fn take(&self, of: Grants) -> Vec<(i64, u64)> {
        let take = |link: i64, counter: &AtomicU64| {
            let left = LEASED - counter.swap(LEASED, Ordering::Relaxed);
            (left > 0).then_some((link, left))
        };
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match of {
            Grants::Of(link) => {
                live.counters.get(&link).and_then(|(counter, _)| take(link, counter)).into_iter().collect()
            }
            Grants::Idle(age) => {
                let idle = live.counters.iter().filter(|(_, (_, used))| used.elapsed() >= age);
                idle.filter_map(|(&link, (counter, _))| take(link, counter)).collect()
            }
        }
    }
}
