//! The remaining clicks of links with a limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::LEASED;

/// How long the counter of a limited link outlives its cache entries: well beyond the next flush, so that a reloaded
/// entry never starts from an outdated count.
const COUNTER_KEPT: Duration = Duration::from_secs(60);

/// How long a link counts as used up after the database said so. Grants come back after 5 s at the earliest, so visitors
/// hardly notice, and asking for each visit would let anybody with one such link keep the database busy.
pub(super) const USED_UP_KEPT: Duration = Duration::from_secs(1);

/// Locked by the one visit that requests clicks of a link. Contains when such a request last failed.
pub type Turns = tokio::sync::Mutex<Option<Instant>>;

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
    counters: HashMap<i64, Counter>,
    /// The limits under which clicks were granted.
    limits: HashMap<i64, u64>,
    sweep_at: usize,
}

struct Counter {
    clicks: Arc<AtomicU64>,
    /// When it was last requested.
    used: Instant,
    /// When the database last said that a [`LEASED`] link has no clicks left.
    used_up: Option<Instant>,
    /// Made when clicks are first requested, which they are for [`LEASED`] links only.
    turns: Option<Arc<Turns>>,
}

impl ClickLimits {
    /// The counter of a link. It is never below the store's count: clicks while the link had no limit are only there.
    pub(super) fn counter(&self, link: i64, stored: u64) -> Arc<AtomicU64> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Counter { clicks, used, .. }) = live.counters.get_mut(&link) {
            *used = Instant::now();
            if stored != LEASED {
                clicks.fetch_max(stored, Ordering::Relaxed);
            }
            return Arc::clone(clicks);
        }
        // Sweep each time the map has doubled. By the time a counter is removed, its clicks are in the store.
        if live.counters.len() >= live.sweep_at {
            live.counters.retain(|_, Counter { clicks, used, .. }| {
                Arc::strong_count(clicks) > 1 || used.elapsed() < COUNTER_KEPT
            });
            let LiveCounters { counters, limits, .. } = &mut *live;
            limits.retain(|link, _| counters.contains_key(link));
            live.sweep_at = 2 * live.counters.len().max(512);
        }
        let clicks = Arc::new(AtomicU64::new(stored));
        let counter =
            Counter { clicks: Arc::clone(&clicks), used: Instant::now(), used_up: None, turns: None };
        live.counters.insert(link, counter);
        clicks
    }

    /// The turns of a link. A link without a counter gets some that nobody else has, so the counters bound these too.
    pub(super) fn turns(&self, link: i64) -> Arc<Turns> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = live.counters.get_mut(&link);
        counter.map(|counter| Arc::clone(counter.turns.get_or_insert_default())).unwrap_or_default()
    }

    /// Records a limit. Returns whether it differs from the recorded one. If so, the link may have clicks again.
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
        let changed = before.is_some() && before != most;
        if changed && let Some(counter) = live.counters.get_mut(&link) {
            counter.used_up = None;
        }
        changed
    }

    /// The recorded limit of a link.
    pub(super) fn recorded(&self, link: i64) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).limits.get(&link).copied()
    }

    /// Adds clicks to a [`LEASED`] link.
    pub(super) fn grant(&self, link: i64, clicks: u64) {
        self.counter(link, LEASED).fetch_sub(clicks, Ordering::Relaxed);
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = live.counters.get_mut(&link) {
            counter.used_up = None;
        }
    }

    /// Records that a [`LEASED`] link has no clicks left under the limit `most`. If it has got another limit since,
    /// nothing is recorded. Neither is it for a link without a counter, so the counters bound this too.
    pub(super) fn use_up(&self, link: i64, most: Option<u64>, now: Instant) {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let LiveCounters { counters, limits, .. } = &mut *live;
        if limits.get(&link).copied() == most
            && let Some(counter) = counters.get_mut(&link)
        {
            counter.used_up = Some(now);
        }
    }

    /// Whether no clicks were left within the last [`USED_UP_KEPT`].
    pub(super) fn is_used_up(&self, link: i64, now: Instant) -> bool {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used_up = live.counters.get(&link).and_then(|counter| counter.used_up);
        used_up.is_some_and(|at| now.saturating_duration_since(at) < USED_UP_KEPT)
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
                let counter = live.counters.get(&link);
                counter.and_then(|counter| take(link, &counter.clicks)).into_iter().collect()
            }
            Grants::Idle(age) => {
                let idle = live.counters.iter().filter(|(_, counter)| counter.used.elapsed() >= age);
                idle.filter_map(|(&link, counter)| take(link, &counter.clicks)).collect()
            }
        }
    }
}
