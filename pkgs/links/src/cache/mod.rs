//! Prepared answers by domain and code, in two layers, coherent with the store.
//!
//! [`Cache`] is shared by all workers and limited in bytes. [`LocalCache`] is a worker's small set-associative table
//! in front of it. A hit there touches no memory that another core writes, so a popular link costs the same on sixteen
//! cores as on one.
//!
//! Coherence does not rely on removing entries, which would race with running reads. Every entry has the
//! [`Generations`] stamp that was read *before* its row. The writer thread raises the stamp of a changed code after the
//! commit and before acknowledging it. From that moment, an entry with an old stamp counts as absent on every worker.
//!
//! If other processes also write to the database ([`Cache::following`]), the cache is valid only while all their writes
//! are known. Otherwise every stamp counts as outdated, so a hit does not have to read a clock.

mod click_limits;
mod entry;
mod freshness;
mod generations;
mod local;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quick_cache::sync::DefaultLifecycle;

use crate::code;
use crate::domains::{DomainId, LinkKey};
use crate::store::{Change, Error, Route};

use click_limits::ClickLimits;
use freshness::Freshness;
use generations::Generations;

pub use click_limits::{Turns, Unspent};
pub use entry::{Entry, Rules, Verdict};
pub use local::LocalCache;

/// A typical entry's size, from which the shared cache estimates the number of entries.
const TYPICAL_BYTES: u64 = 256;

/// The longest [key](with_key), in bytes.
const MAX_KEY_BYTES: usize = 1 + size_of::<i64>() + code::MAX_BYTES;

/// Stripes if one process has the database: few enough to stay in the processor's cache.
const STRIPES: usize = 1 << 12;

/// Stripes if there may be many writers. An edit reloads one entry in a million, so 100 edits per second are
/// affordable.
const FOLLOWING_STRIPES: usize = 1 << 20;

/// Keyed by the key's hash. The entry contains the key, which distinguishes it from others with the same hash.
type Shared = quick_cache::sync::Cache<u64, Entry, Weigher, BuildHasherDefault<IdentityHasher>>;

/// Weighs an entry by its memory.
#[derive(Clone)]
struct Weigher;

impl quick_cache::Weighter<u64, Entry> for Weigher {
    fn weight(&self, _: &u64, entry: &Entry) -> u64 {
        entry.weight()
    }
}

/// Uses a hash as it is.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The answers all workers share.
pub struct Cache {
    entries: Option<Shared>,
    hasher: foldhash::quality::RandomState,
    generations: Generations,
    limits: ClickLimits,
    freshness: Option<Freshness>,
}

/// The state of a code before it is read from the store.
#[derive(Clone, Copy, Debug)]
pub struct PendingRead {
    hash: u64,
    stamp: u32,
}

/// The source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The worker's own table or the shared cache.
    Cache,
    /// The store.
    Store,
}

impl Cache {
    /// A cache of at most `bytes`. With 0 there is none, and every visit reads the store.
    pub fn new(bytes: u64) -> Self {
        Self::with(bytes, STRIPES, None)
    }

    /// A cache of a database that others write to as well. It is valid only while their writes are known, so it starts
    /// as invalid.
    pub fn following(bytes: u64) -> Arc<Self> {
        let cache = Arc::new(Self::with(bytes, FOLLOWING_STRIPES, Some(Freshness::new())));
        cache.generations.set_stale(true);
        let watched = Arc::clone(&cache);
        let watch = move || {
            if let Some(freshness) = &watched.freshness {
                freshness.watch(&watched.generations);
            }
        };
        // The thread ends with the process.
        std::thread::Builder::new()
            .name("freshness".into())
            .spawn(watch)
            .expect("the system can start a thread");
        cache
    }

    fn with(bytes: u64, stripes: usize, freshness: Option<Freshness>) -> Self {
        let hasher = foldhash::quality::RandomState::default();
        let entries = (bytes > 0).then(|| {
            let entries = usize::try_from(bytes / TYPICAL_BYTES).unwrap_or(usize::MAX);
            Shared::with(entries, bytes, Weigher, BuildHasherDefault::default(), DefaultLifecycle::default())
        });
        let generations = Generations::new(stripes);
        Self { entries, hasher, generations, limits: ClickLimits::default(), freshness }
    }

    /// Every change before `heard` is known, so entries may be used until `bound` after it.
    pub fn heard_all_before(&self, heard: Instant, bound: Duration) {
        self.freshness.iter().for_each(|freshness| freshness.extend(&self.generations, heard, bound));
    }

    /// Tells that the database is unreachable. Entries stay in use until `limit` after the last contact.
    pub fn away(&self, limit: Duration) {
        self.freshness.iter().for_each(|freshness| freshness.linger(limit));
    }

    /// The time since the last contact, if entries are still in use although the database is unreachable.
    pub fn lingers(&self) -> Option<Duration> {
        self.freshness.as_ref().and_then(Freshness::lingers)
    }

    /// How long ago this process last heard of other servers' writes: zero if there are no other writers, `None` if
    /// never.
    pub fn feed_age(&self) -> Option<Duration> {
        self.freshness.as_ref().map_or(Some(Duration::ZERO), Freshness::age)
    }

    /// Whether entries are known to be up to date and are in use.
    pub fn is_fresh(&self) -> bool {
        self.freshness.as_ref().is_none_or(Freshness::holds)
    }

    /// The entry of a code as of the last contact with the database.
    pub fn last(&self, domain: DomainId, code: &str) -> Option<Entry> {
        with_key(domain, code, |key| {
            let hash = self.hasher.hash_one(key);
            let entry = self.entries.as_ref()?.get(&hash)?;
            entry.is(key, self.generations.last_stamp(hash)).then_some(entry)
        })
    }

    /// Call this before reading a code from a database that answers asynchronously.
    pub fn reading(&self, domain: DomainId, code: &str) -> PendingRead {
        let hash = with_key(domain, code, |key| self.hasher.hash_one(key));
        PendingRead { hash, stamp: self.generations.last_stamp(hash) }
    }

    /// Stores the result of reading a code. It is valid as long as nothing has changed since the read started.
    pub fn keep(&self, reading: PendingRead, domain: DomainId, code: &str, route: Option<Route>) -> Entry {
        let entry = self.entry(reading, domain, code, route);
        if let Some(entries) = &self.entries {
            entries.insert(reading.hash, entry.clone());
        }
        entry
    }

    /// Makes the entry without storing it.
    pub fn entry(&self, reading: PendingRead, domain: DomainId, code: &str, route: Option<Route>) -> Entry {
        with_key(domain, code, |key| Entry::new(key, reading.stamp, route, &self.limits))
    }

    /// Grants `clicks` more clicks of a link to this process.
    pub fn grant(&self, link: i64, clicks: u64) {
        self.limits.grant(link, clicks);
    }

    /// Records the limit of a link whose clicks are granted. Returns whether it differs from the recorded one. If so,
    /// no visit gets the clicks that were granted before.
    pub fn limits_changed(&self, link: i64, most: Option<u64>) -> bool {
        self.limits.changed(link, most)
    }

    /// The recorded limit of a link, for [`use_up`](Self::use_up). Read it before requesting clicks.
    pub fn recorded_limit(&self, link: i64) -> Option<u64> {
        self.limits.recorded(link)
    }

    /// Records that the database had no clicks left for a link under the limit `most`, unless it has changed since.
    pub fn use_up(&self, link: i64, most: Option<u64>, now: Instant) {
        self.limits.use_up(link, most, now);
    }

    /// Whether the database had no clicks left for a link within the last second.
    pub fn is_used_up(&self, link: i64, now: Instant) -> bool {
        self.limits.is_used_up(link, now)
    }

    /// Whose turn it is to request clicks of a link.
    pub fn turns(&self, link: i64) -> Arc<Turns> {
        self.limits.turns(link)
    }

    /// Waits until there are grants of earlier limits.
    pub async fn outdated_grants(&self) {
        self.limits.outdated().await;
    }

    /// Takes unused grants: those of links that were granted nothing for this long, and those of earlier limits.
    pub fn take_grants(&self, idle: Duration) -> Vec<Unspent> {
        self.limits.take(idle)
    }

    /// Puts grants back that were taken. No visit gets those whose link has got another limit since, so that it is not
    /// exceeded. They wait to be taken again.
    pub fn put_back(&self, grants: Vec<Unspent>) {
        self.limits.put_back(grants);
    }

    /// Makes changed entries outdated. Called after the commit, before it is acknowledged.
    pub fn changed(&self, change: &Change<'_>) {
        match change {
            Change::Codes(codes) => {
                // A longer text is no code, and has no entry.
                for LinkKey { domain, code } in codes.iter().filter(|key| key.code.len() <= code::MAX_BYTES) {
                    let hash = with_key(*domain, code, |key| self.hasher.hash_one(key));
                    self.generations.raise(hash);
                }
            }
            Change::All => self.generations.raise_all(),
        }
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.entries.as_ref().map_or(0, |entries| entries.len() as u64)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of all entries, in bytes.
    pub fn bytes(&self) -> u64 {
        self.entries.as_ref().map_or(0, Shared::weight)
    }

    /// Looks up a key with its hash. Calls `read` if the key is not cached.
    fn shared(
        &self,
        (key, hash): (&[u8], u64),
        stamp: u32,
        read: impl FnOnce() -> Result<Option<Route>, Error>,
    ) -> Result<(Entry, Source), Error> {
        if let Some(entry) = self.entries.as_ref().and_then(|entries| entries.get(&hash))
            && entry.is(key, stamp)
        {
            return Ok((entry, Source::Cache));
        }
        let entry = Entry::new(key, stamp, read()?, &self.limits);
        if let Some(entries) = &self.entries {
            entries.insert(hash, entry.clone());
        }
        Ok((entry, Source::Store))
    }
}

/// Passes a code's key to `what`: the code itself at the default domain, otherwise the domain's id followed by the
/// code. Codes contain no slash, so no two keys are equal.
#[inline]
fn with_key<R>(domain: DomainId, code: &str, what: impl FnOnce(&[u8]) -> R) -> R {
    if domain == DomainId::DEFAULT {
        return what(code.as_bytes());
    }
    let mut room = [0; MAX_KEY_BYTES];
    let (mark, rest) = room.split_at_mut(1);
    let (id, rest) = rest.split_at_mut(size_of::<i64>());
    mark[0] = b'/';
    id.copy_from_slice(&domain.0.to_le_bytes());
    rest[..code.len()].copy_from_slice(code.as_bytes());
    what(&room[..1 + size_of::<i64>() + code.len()])
}
