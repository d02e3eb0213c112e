//! Ready-made answers by domain and code, in two layers, coherent with the store.
//!
//! [`Cache`] is shared by all workers and bounded by bytes. [`LocalCache`] is one worker's small set-associative
//! table in front of it: a hit there touches no memory that another core writes, so a popular link costs
//! the same on sixteen cores as on one.
//!
//! Coherence does not rest on removing entries, which would race with a read under way. Every entry
//! carries the [`Generations`] stamp read *before* its row was; the writer thread raises the stamp of a
//! changed code after the commit and before acknowledging it. An entry whose stamp is no longer the
//! present one counts as absent, on every worker, from that moment.
//!
//! Where others write to the database too ([`Cache::following`]), a cache counts for as long as it is known that all they
//! wrote was heard of. When it is not, no stamp is the present one, so that a hit asks no clock.

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

pub use click_limits::Grants;
pub use entry::{Entry, Rules, Verdict};
pub use local::LocalCache;

/// The bytes of most entries, of which the shared cache guesses how many there will be.
const TYPICAL_BYTES: u64 = 256;

/// The longest [key](with_key), in bytes.
const MAX_KEY_BYTES: usize = 1 + size_of::<i64>() + code::MAX_BYTES;

/// Stripes where one process has the database: few enough to stay near the processor.
const STRIPES: usize = 1 << 12;

/// Stripes where there may be many writers: of 100 edits a second, each makes one entry in a million reload.
const FOLLOWING_STRIPES: usize = 1 << 20;

/// By the hash of the key: the entry itself has the key, which tells it from another of the same hash.
type Shared = quick_cache::sync::Cache<u64, Entry, Weigher, BuildHasherDefault<IdentityHasher>>;

/// Weighs an entry at the memory it takes.
#[derive(Clone)]
struct Weigher;

impl quick_cache::Weighter<u64, Entry> for Weigher {
    fn weight(&self, _: &u64, entry: &Entry) -> u64 {
        entry.weight()
    }
}

/// Takes a hash for what it is.
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

/// A code that is about to be read, and what was known of its changes before.
#[derive(Clone, Copy, Debug)]
pub struct PendingRead {
    hash: u64,
    stamp: u32,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The worker's own table or the shared cache.
    Cache,
    /// The store.
    Store,
}

impl Cache {
    /// A cache of at most `bytes`; 0 turns it off, so that every visit reads the store.
    pub fn new(bytes: u64) -> Self {
        Self::with(bytes, STRIPES, None)
    }

    /// One of a database that others write to as well, which is used while it is known what they write: not yet.
    pub fn following(bytes: u64) -> Arc<Self> {
        let cache = Arc::new(Self::with(bytes, FOLLOWING_STRIPES, Some(Freshness::new())));
        cache.generations.set_stale(true);
        let watched = Arc::clone(&cache);
        let watch = move || {
            if let Some(freshness) = &watched.freshness {
                freshness.watch(&watched.generations);
            }
        };
        // It ends with the process.
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

    /// Every change before `heard` was heard of: what is held may be used for `bound` from then on.
    pub fn heard_all_before(&self, heard: Instant, bound: Duration) {
        self.freshness.iter().for_each(|freshness| freshness.extend(&self.generations, heard, bound));
    }

    /// The database is away: what is held goes on for `limit` after it was heard of last.
    pub fn away(&self, limit: Duration) {
        self.freshness.iter().for_each(|freshness| freshness.linger(limit));
    }

    /// For how long nothing was heard, where what is held is used because the database is away.
    pub fn lingers(&self) -> Option<Duration> {
        self.freshness.as_ref().and_then(Freshness::lingers)
    }

    /// For how long what others write has not been heard of: zero where no others do, and none where it never was.
    pub fn feed_age(&self) -> Option<Duration> {
        self.freshness.as_ref().map_or(Some(Duration::ZERO), Freshness::age)
    }

    /// Whether what is held is known to be right, and used.
    pub fn is_fresh(&self) -> bool {
        self.freshness.as_ref().is_none_or(Freshness::holds)
    }

    /// What was known of a code when the database was heard of last.
    pub fn last(&self, domain: DomainId, code: &str) -> Option<Entry> {
        with_key(domain, code, |key| {
            let hash = self.hasher.hash_one(key);
            let entry = self.entries.as_ref()?.get(&hash)?;
            entry.is(key, self.generations.last_stamp(hash)).then_some(entry)
        })
    }

    /// To be taken before a code is read of a database that has to be waited for.
    pub fn reading(&self, domain: DomainId, code: &str) -> PendingRead {
        let hash = with_key(domain, code, |key| self.hasher.hash_one(key));
        PendingRead { hash, stamp: self.generations.last_stamp(hash) }
    }

    /// What was read of a code. It is held, and found for as long as nothing has changed since it was begun to be read.
    pub fn keep(&self, reading: PendingRead, domain: DomainId, code: &str, route: Option<Route>) -> Entry {
        let entry = self.entry(reading, domain, code, route);
        if let Some(entries) = &self.entries {
            entries.insert(reading.hash, entry.clone());
        }
        entry
    }

    /// The same, not to be held.
    pub fn entry(&self, reading: PendingRead, domain: DomainId, code: &str, route: Option<Route>) -> Entry {
        with_key(domain, code, |key| Entry::new(key, reading.stamp, route, &self.limits))
    }

    /// Lets a link be followed `clicks` times more, of those that this process has been granted.
    pub fn grant(&self, link: i64, clicks: u64) {
        self.limits.grant(link, clicks);
    }

    /// Notes the limit of a link whose clicks are granted; whether it is another one than was noted.
    pub fn limits_changed(&self, link: i64, most: Option<u64>) -> bool {
        self.limits.changed(link, most)
    }

    /// Takes back what a link was granted and did not need, of one link or of all that were granted nothing for so long.
    pub fn take_grants(&self, of: Grants) -> Vec<(i64, u64)> {
        self.limits.take(of)
    }

    /// Makes what changed reload. Called after the commit, before it is acknowledged.
    pub fn changed(&self, change: &Change<'_>) {
        match change {
            Change::Codes(codes) => {
                for LinkKey { domain, code } in *codes {
                    let hash = with_key(*domain, code, |key| self.hasher.hash_one(key));
                    self.generations.raise(hash);
                }
            }
            Change::All => self.generations.raise_all(),
        }
    }

    /// How many entries are held.
    pub fn len(&self) -> u64 {
        self.entries.as_ref().map_or(0, |entries| entries.len() as u64)
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes the entries are weighed at.
    pub fn bytes(&self) -> u64 {
        self.entries.as_ref().map_or(0, Shared::weight)
    }

    /// What is known of a key, which hashes to this and is read so where it is not known.
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

/// Does something with the key of a code: the code itself at the default domain, at another one its id before it. No code
/// has a slash, so no two keys are the same.
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
