//! A cache of reads, valid as long as it is known to equal the database.
//!
//! A read that misses takes a [`Stamp`] before it queries the database, and stores the answer under that stamp. Every
//! known change invalidates the stamps of its key and removes the value, so an answer that was on its way meanwhile is
//! not stored. Storing and changing both hold the key's lock, so an outdated value is never visible. Reading a cached
//! value takes a shared lock of one shard of the table.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::OptionsBuilder;
use quick_cache::sync::DefaultLifecycle;

/// Keys share this many change counters. If a key changes while another key with the same counter is being read, that
/// read is not cached. This is rare and harmless.
const STRIPES: usize = 1_024;

/// A typical value's size, from which the table estimates the number of values.
const TYPICAL_BYTES: u64 = 2 << 10;

/// The smallest capacity of a shard of the table, whatever the number of processors. A value that does not fit a shard
/// is not stored, and the largest user takes one MiB.
const PART_BYTES: u64 = 4 << 20;

/// Until when a cache may be used.
#[derive(Debug)]
pub struct Freshness {
    begin: Instant,
    /// Nanoseconds since `begin`, like `heard` and `away_until`.
    until: AtomicU64,
    /// The last time before which every change is known.
    heard: AtomicU64,
    /// Until when the cache is used while the database is away, although changes are then unknown; 0 while it is there.
    away_until: AtomicU64,
}

impl Freshness {
    /// Always fresh, for a holder that knows every change before it is acknowledged.
    pub fn forever() -> Self {
        Self { until: AtomicU64::new(u64::MAX), ..Self::never() }
    }

    /// Not fresh before [`extend`](Self::extend) is called.
    pub fn never() -> Self {
        Self {
            begin: Instant::now(),
            until: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            away_until: AtomicU64::new(0),
        }
    }

    /// Every change before `heard` is known, so the cache may be used for `bound` from then on.
    pub fn extend(&self, heard: Instant, bound: Duration) {
        self.away_until.store(0, Ordering::Release);
        self.heard.fetch_max(self.nanoseconds(heard), Ordering::Release);
        self.until.fetch_max(self.nanoseconds(heard + bound), Ordering::Release);
    }

    /// The database is away. The last known state is used, and marked as such, for `limit` after the database was last
    /// heard of.
    pub fn linger(&self, limit: Duration) {
        let heard = self.heard.load(Ordering::Acquire);
        if heard > 0 {
            self.away_until.store(heard.saturating_add(nanoseconds(limit)), Ordering::Release);
        }
    }

    /// How long nothing was heard, if the cache is still used because the database is away.
    pub fn lingers(&self) -> Option<Duration> {
        // Usually a single load.
        let until = self.away_until.load(Ordering::Acquire);
        if until == 0 || self.holds() {
            return None;
        }
        let now = self.begin.elapsed();
        (now < Duration::from_nanos(until))
            .then(|| now.saturating_sub(Duration::from_nanos(self.heard.load(Ordering::Acquire))))
    }

    fn nanoseconds(&self, instant: Instant) -> u64 {
        nanoseconds(instant.saturating_duration_since(self.begin))
    }

    /// Whether the cache may be used now.
    pub fn holds(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == u64::MAX || self.begin.elapsed() < Duration::from_nanos(until)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The state of a key before it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    epoch: u64,
    changes: u64,
}

/// Values with the epoch in which they were read; those of earlier epochs count as absent.
type Values<K, V> = quick_cache::sync::Cache<K, (u64, V), Weigher<V>, RandomState>;

/// Weighs a value by its bytes.
struct Weigher<V>(fn(&V) -> usize);

impl<V> Clone for Weigher<V> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<K, V> quick_cache::Weighter<K, (u64, V)> for Weigher<V> {
    fn weight(&self, _: &K, (_, value): &(u64, V)) -> u64 {
        (self.0)(value) as u64
    }
}

/// Values by key, limited in bytes.
pub struct Cache<K, V> {
    /// None if there is no room for anything.
    values: Option<Values<K, V>>,
    /// The number of times that everything may have changed.
    epoch: AtomicU64,
    /// The number of changes, by hash of the key; locked while values of these keys are written or removed.
    changes: Box<[Mutex<u64>]>,
    hasher: RandomState,
    freshness: Arc<Freshness>,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Copy + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// An empty cache of this many bytes as `weigh` counts them, used while `freshness` holds; 0 stores nothing.
    pub fn new(bytes: u64, weigh: fn(&V) -> usize, freshness: Arc<Freshness>) -> Self {
        let values = || {
            let most = 4 * std::thread::available_parallelism().map_or(1, usize::from);
            let options = OptionsBuilder::new()
                .estimated_items_capacity(usize::try_from(bytes / TYPICAL_BYTES).unwrap_or(usize::MAX).max(1))
                .weight_capacity(bytes)
                .shards(usize::try_from(bytes / PART_BYTES).unwrap_or(usize::MAX).clamp(1, most))
                .build()
                .expect("both capacities are told");
            Values::with_options(options, Weigher(weigh), RandomState::new(), DefaultLifecycle::default())
        };
        Self {
            values: (bytes > 0).then(values),
            epoch: AtomicU64::new(0),
            changes: (0..STRIPES).map(|_| Mutex::new(0)).collect(),
            hasher: RandomState::new(),
            freshness,
        }
    }

    /// The value of a key, if it is cached and known to be right.
    pub fn get(&self, key: &K) -> Option<V> {
        if self.freshness.holds() { self.last(key) } else { None }
    }

    /// The last value of a key that was known to be right, if it is cached.
    pub fn last(&self, key: &K) -> Option<V> {
        let (epoch, value) = self.values.as_ref()?.get(key)?;
        (epoch == self.epoch.load(Ordering::Acquire)).then_some(value)
    }

    /// Call this before querying the database for a key.
    pub fn stamp(&self, key: &K) -> Stamp {
        Stamp { epoch: self.epoch.load(Ordering::SeqCst), changes: *self.changes_of(key) }
    }

    /// Stores the database's answer, unless the key has changed since the stamp.
    pub fn keep(&self, key: K, stamp: Stamp, value: V) {
        let changes = self.changes_of(&key);
        // If `change_all` runs meanwhile, the value has an earlier epoch and counts as absent.
        if *changes == stamp.changes && self.epoch.load(Ordering::SeqCst) == stamp.epoch {
            self.values.iter().for_each(|values| values.insert(key, (stamp.epoch, value.clone())));
        }
    }

    /// The key's value has changed, or was deleted.
    pub fn change(&self, key: &K) {
        let mut changes = self.changes_of(key);
        *changes += 1;
        self.values.iter().for_each(|values| drop(values.remove(key)));
    }

    /// Any key may have changed.
    pub fn change_all(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.values.iter().for_each(Values::clear);
    }

    /// The approximate number of values, and their bytes.
    pub fn size(&self) -> (u64, u64) {
        self.values.as_ref().map_or((0, 0), |values| (values.len() as u64, values.weight()))
    }

    fn changes_of(&self, key: &K) -> MutexGuard<'_, u64> {
        let stripe = &self.changes[self.hasher.hash_one(key) as usize % STRIPES];
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(freshness: Freshness) -> Cache<u32, &'static str> {
        Cache::new(1_000, |value| value.len(), Arc::new(freshness))
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes_whatever_comes() {
        for bytes in [0, 1 << 10, 8 << 20, 128 << 20] {
            let cache = Cache::<u32, usize>::new(bytes, |&length| length, Arc::new(Freshness::forever()));
            // The largest user is stored if there is a little room for others. A larger value is never stored.
            let cases = [(1, 1 << 20, bytes >= 8 << 20), (2, 256 << 20, false), (3, 100, bytes > 0)];
            for (key, length, kept) in cases {
                cache.keep(key, cache.stamp(&key), length);
                assert_eq!(cache.get(&key), kept.then_some(length), "{length} in {bytes}");
            }
            for key in 10..100_000 {
                cache.keep(key, cache.stamp(&key), 2_000);
            }
            let (_, size) = cache.size();
            assert!(size <= bytes, "{size} in {bytes}");
            assert!(size > bytes / 2 || bytes < 2_000, "{size} in {bytes}");
        }
    }

    #[test]
    fn an_answer_that_was_under_way_during_a_change_is_not_kept() {
        let cache = cache(Freshness::forever());
        for change in [Cache::change_all as fn(&Cache<u32, &'static str>), |cache| cache.change(&1)] {
            let stamp = cache.stamp(&1);
            cache.keep(1, stamp, "old");
            assert_eq!(cache.get(&1), Some("old"));
            change(&cache);
            assert_eq!(cache.get(&1), None);
            cache.keep(1, stamp, "old");
            assert_eq!(cache.get(&1), None);
            cache.keep(1, cache.stamp(&1), "new");
            assert_eq!(cache.get(&1), Some("new"));
        }
    }

    #[test]
    fn a_value_that_a_change_has_made_old_is_seen_by_nobody_after_the_change() {
        const CHANGES: u64 = 100_000;
        let cache = Cache::<u32, u64>::new(1_000, |_| 8, Arc::new(Freshness::forever()));
        let database = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while database.load(Ordering::SeqCst) < CHANGES {
                        let stamp = cache.stamp(&1);
                        cache.keep(1, stamp, database.load(Ordering::SeqCst));
                    }
                });
            }
            for _ in 0..CHANGES {
                let written = database.fetch_add(1, Ordering::SeqCst) + 1;
                cache.change(&1);
                let read = cache.get(&1);
                if read.is_some_and(|read| read < written) {
                    database.store(CHANGES, Ordering::SeqCst);
                    panic!("{written} was written, and {read:?} read after that");
                }
            }
        });
    }

    #[test]
    fn a_cache_that_is_not_known_to_be_fresh_answers_nothing() {
        let cache = cache(Freshness::never());
        cache.keep(1, cache.stamp(&1), "value");
        assert_eq!(cache.get(&1), None);
        let minute = Duration::from_secs(60);
        cache.freshness.extend(Instant::now(), minute);
        assert_eq!(cache.get(&1), Some("value"));
        // An older time takes nothing back.
        cache.freshness.extend(Instant::now(), Duration::ZERO);
        assert_eq!(cache.get(&1), Some("value"));
    }

    #[test]
    fn while_the_database_is_away_a_cache_goes_on_by_the_clock_and_says_so() {
        let minute = Duration::from_secs(60);
        let freshness = Freshness::never();
        freshness.linger(minute);
        assert_eq!(freshness.lingers(), None, "nothing was ever heard");
        freshness.extend(Instant::now(), Duration::ZERO);
        assert_eq!(freshness.lingers(), None, "it is not away");
        freshness.linger(minute);
        assert!(freshness.lingers().is_some_and(|age| age < minute) && !freshness.holds());
        freshness.linger(Duration::ZERO);
        assert_eq!(freshness.lingers(), None, "its time is over");
        freshness.linger(minute);
        freshness.extend(Instant::now(), minute);
        assert_eq!(freshness.lingers(), None, "it is back");
        assert!(freshness.holds());
    }
}
