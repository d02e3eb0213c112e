//! The remaining clicks of links with a limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::store::LEASED;

/// How long the counter of a limited link outlives its cache entries: well beyond the next flush, so that a reloaded
/// entry never starts from an outdated count.
const COUNTER_KEPT: Duration = Duration::from_secs(60);

/// How long a link counts as used up after the database said so. Grants come back after 5 s at the earliest, so visitors
/// hardly notice, and asking for each visit would let anybody with one such link keep the database busy.
pub(super) const USED_UP_KEPT: Duration = Duration::from_secs(1);

/// Locked by the one visit that requests clicks of a link. Contains when such a request last failed.
pub type Turns = tokio::sync::Mutex<Option<Instant>>;

/// Clicks of a link that were granted and not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unspent {
    /// The link.
    pub link: i64,
    /// How many clicks.
    pub clicks: u64,
    /// The limit under which they were granted. They may exceed another one.
    limit: Option<u64>,
}

/// The clicks so far of links with a limit. Each link has one counter, for all workers and all reloads of its entry.
#[derive(Default)]
pub(super) struct ClickLimits {
    live: Mutex<LiveCounters>,
    /// Notified when clicks are granted under a limit that is no longer the link's.
    outdated: Notify,
}

#[derive(Default)]
struct LiveCounters {
    counters: HashMap<i64, Counter>,
    /// The limits under which clicks were granted.
    limits: HashMap<i64, u64>,
    /// Clicks that were granted under earlier limits. No visit gets them any more.
    outdated: Vec<Unspent>,
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
        let mut live = self.live();
        if let Some(Counter { clicks, used, .. }) = live.counters.get_mut(&link) {
            *used = Instant::now();
            if stored != LEASED {
                clicks.fetch_max(stored, Ordering::Relaxed);
            }
            return Arc::clone(clicks);
        }
        // Sweep each time the map has doubled. By the time a counter is removed, its clicks are in the store. Granted
        // clicks are kept while no database takes them back.
        if live.counters.len() >= live.sweep_at {
            let LiveCounters { counters, limits, .. } = &mut *live;
            counters.retain(|link, Counter { clicks, used, .. }| {
                Arc::strong_count(clicks) > 1
                    || used.elapsed() < COUNTER_KEPT
                    || (limits.contains_key(link) && clicks.load(Ordering::Relaxed) < LEASED)
            });
            // This link's limit was recorded just before.
            limits.retain(|known, _| *known == link || counters.contains_key(known));
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
        let mut live = self.live();
        let counter = live.counters.get_mut(&link);
        counter.map(|counter| Arc::clone(counter.turns.get_or_insert_default())).unwrap_or_default()
    }

    /// Records a limit. Returns whether it differs from the recorded one. If so, the link may have clicks again, and no
    /// visit gets those that were granted before.
    pub(super) fn changed(&self, link: i64, most: Option<u64>) -> bool {
        let mut live = self.live();
        // Nothing is recorded for links without a limit, which most links are.
        if most.is_none() && live.limits.is_empty() {
            return false;
        }
        let LiveCounters { counters, limits, outdated, .. } = &mut *live;
        let before = match most {
            Some(most) => limits.insert(link, most),
            None => limits.remove(&link),
        };
        let changed = before.is_some() && before != most;
        if changed && let Some(counter) = counters.get_mut(&link) {
            counter.used_up = None;
            if let Some(unspent) = take(link, counter, before) {
                outdated.push(unspent);
                self.outdated.notify_one();
            }
        }
        changed
    }

    /// Waits until there are clicks that were granted under an earlier limit.
    pub(super) async fn outdated(&self) {
        self.outdated.notified().await;
    }

    /// The recorded limit of a link.
    pub(super) fn recorded(&self, link: i64) -> Option<u64> {
        self.live().limits.get(&link).copied()
    }

    /// Adds clicks to a [`LEASED`] link.
    pub(super) fn grant(&self, link: i64, clicks: u64) {
        self.counter(link, LEASED).fetch_sub(clicks, Ordering::Relaxed);
        let mut live = self.live();
        if let Some(counter) = live.counters.get_mut(&link) {
            counter.used_up = None;
        }
    }

    /// Records that a [`LEASED`] link has no clicks left under the limit `most`. If it has got another limit since,
    /// nothing is recorded. Neither is it for a link without a counter, so the counters bound this too.
    pub(super) fn use_up(&self, link: i64, most: Option<u64>, now: Instant) {
        let mut live = self.live();
        let LiveCounters { counters, limits, .. } = &mut *live;
        if limits.get(&link).copied() == most
            && let Some(counter) = counters.get_mut(&link)
        {
            counter.used_up = Some(now);
        }
    }

    /// Whether no clicks were left within the last [`USED_UP_KEPT`].
    pub(super) fn is_used_up(&self, link: i64, now: Instant) -> bool {
        let live = self.live();
        let used_up = live.counters.get(&link).and_then(|counter| counter.used_up);
        used_up.is_some_and(|at| now.saturating_duration_since(at) < USED_UP_KEPT)
    }

    /// Takes the remaining clicks of [`LEASED`] links that were granted nothing for this long, and those of earlier
    /// limits.
    pub(super) fn take(&self, idle: Duration) -> Vec<Unspent> {
        let mut live = self.live();
        let LiveCounters { counters, limits, outdated, .. } = &mut *live;
        let idle = counters.iter().filter(|(_, counter)| counter.used.elapsed() >= idle);
        let unspent = idle.filter_map(|(&link, counter)| take(link, counter, limits.get(&link).copied()));
        outdated.drain(..).chain(unspent).collect()
    }

    /// Puts clicks back that were taken. No visit gets those whose link has got another limit since.
    pub(super) fn put_back(&self, unspent: Vec<Unspent>) {
        let mut live = self.live();
        let LiveCounters { counters, limits, outdated, .. } = &mut *live;
        for grant in unspent {
            match counters.get_mut(&grant.link) {
                Some(counter) if limits.get(&grant.link).copied() == grant.limit => {
                    counter.clicks.fetch_sub(grant.clicks, Ordering::Relaxed);
                    counter.used_up = None;
                }
                _ => outdated.push(grant),
            }
        }
    }

    fn live(&self) -> MutexGuard<'_, LiveCounters> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the remaining clicks of a [`LEASED`] link, which were granted under `limit`.
fn take(link: i64, counter: &Counter, limit: Option<u64>) -> Option<Unspent> {
    let clicks = LEASED - counter.clicks.swap(LEASED, Ordering::Relaxed);
    (clicks > 0).then_some(Unspent { link, clicks, limit })
}
