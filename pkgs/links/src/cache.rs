//! Ready-made answers by domain and code, in two layers, coherent with the store.
//!
//! [`Cache`] is shared by all workers and bounded by bytes. [`Near`] is one worker's small set-associative
//! table in front of it: a hit there touches no memory that another core writes, so a popular link costs
//! the same on sixteen cores as on one.
//!
//! Coherence does not rest on removing entries, which would race with a read under way. Every entry
//! carries the [`Generations`] stamp read *before* its row was; the writer thread raises the stamp of a
//! changed code after the commit and before acknowledging it. An entry whose stamp is no longer the
//! present one counts as absent, on every worker, from that moment.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::sync::DefaultLifecycle;
use triomphe::ThinArc;

use crate::code;
use crate::domains::{DomainId, LinkKey};
use crate::link::{RedirectStatus, Status};
use crate::store::{Change, Error, Reader, Route};
use crate::when::Timestamp;

/// What the cache and the allocator spend on an entry besides its text, in bytes.
/// Measured by `cargo bench --bench redirect`, which prints the resident bytes of a cached link.
const OVERHEAD_BYTES: u64 = 160;

/// The bytes of most entries, of which the shared cache guesses how many there will be.
const TYPICAL_BYTES: u64 = 256;

/// Slots of a set. Of 10,000 codes in use, one in 30 has a set with more codes than slots; with as many sets of
/// one slot it would be seven in ten.
const WAYS: usize = 4;

/// Sets of a worker's own table: 32,768 slots in 512 KiB.
const NEAR_SETS: usize = 1 << 13;

/// The longest code and target a slot keeps, in bytes, so that a table holds at most 32 MiB. Longer ones are
/// found in the shared cache each time.
const NEAR_TEXT_BYTES: usize = 1 << 10;

/// Stripes of the generation table. An edit makes one entry in 4,096 reload, besides its own.
const STRIPES: usize = 1 << 12;

/// Every 64th hit in a worker's own table is repeated on the shared cache, so that its eviction policy
/// still sees what is popular.
const TOUCH_EVERY: u32 = 64;

/// How long the counter of a click limit outlives the entries that use it: well beyond the next flush, so
/// that a reloaded entry never starts from a count that lags behind.
const COUNTER_KEPT: Duration = Duration::from_secs(60);

/// The longest [key](with_key), in bytes.
const MAX_KEY_BYTES: usize = 1 + size_of::<i64>() + code::MAX_BYTES;

/// What is known of a code: one allocation, shared by whoever holds a clone, with the text right behind the
/// rest, so that a visit finds it all in neighbouring lines of memory.
#[derive(Clone)]
pub struct Entry(ThinArc<Head, u8>);

/// An entry but for its text.
struct Head {
    stamp: u32,
    key_bytes: u8,
    /// The redirect's status, or none where no link answers to this code.
    redirect: Option<RedirectStatus>,
    forward_query: bool,
    link: i64,
    rules: Option<Box<Rules>>,
}

/// What only some links have.
pub struct Rules {
    /// Not found before.
    pub not_before: Option<Timestamp>,
    /// Gone from here on.
    pub expires_at: Option<Timestamp>,
    /// Gone after this many clicks; with the clicks so far, shared by all workers.
    pub limit: Option<(u64, Arc<AtomicU64>)>,
    /// The argon2id hash of the password.
    pub password_hash: Option<Box<str>>,
}

/// What to answer a visit with.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The redirect.
    Follow,
    /// The page that asks for the password.
    Ask,
    /// No such link, or not yet.
    Missing,
    /// Expired or used up.
    Gone,
}

impl Entry {
    fn new(key: &[u8], stamp: u32, route: Option<Route>, limits: &Limits) -> Self {
        let key_bytes = u8::try_from(key.len()).expect("keys are at most 73 bytes");
        let Some(route) = route.filter(|route| route.status == Status::Active) else {
            let head = Head { stamp, key_bytes, redirect: None, forward_query: false, link: 0, rules: None };
            return Self(ThinArc::from_header_and_slice(head, key));
        };
        let limit = route.max_clicks.map(|most| (most, limits.counter(route.id, route.clicks)));
        let plain = route.not_before.is_none()
            && route.expires_at.is_none()
            && limit.is_none()
            && route.password_hash.is_none();
        let rules = (!plain).then(|| {
            Box::new(Rules {
                not_before: route.not_before,
                expires_at: route.expires_at,
                limit,
                password_hash: route.password_hash.map(String::into_boxed_str),
            })
        });
        let head = Head {
            stamp,
            key_bytes,
            redirect: Some(route.redirect),
            forward_query: route.forward_query,
            link: route.id,
            rules,
        };
        let text = [key, route.target.as_bytes()].concat();
        Self(ThinArc::from_header_and_slice(head, &text))
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    /// The key, then the target.
    fn text(&self) -> &[u8] {
        &self.0.slice
    }

    /// Whether this is what the store had for `key` when its stamp was `stamp`.
    fn is(&self, key: &[u8], stamp: u32) -> bool {
        self.head().stamp == stamp && self.key() == key
    }

    /// The [key](with_key) it stands for.
    fn key(&self) -> &[u8] {
        &self.text()[..usize::from(self.head().key_bytes)]
    }

    /// Where the redirect leads, in UTF-8; empty where there is no link.
    pub fn target(&self) -> &[u8] {
        &self.text()[usize::from(self.head().key_bytes)..]
    }

    /// The redirect's status.
    pub fn redirect(&self) -> RedirectStatus {
        self.head().redirect.unwrap_or_default()
    }

    /// Whether the visit's query string goes along.
    pub fn forward_query(&self) -> bool {
        self.head().forward_query
    }

    /// The link's id in the store.
    pub fn link(&self) -> i64 {
        self.head().link
    }

    /// The hash that a password must match.
    pub fn password_hash(&self) -> Option<&str> {
        self.head().rules.as_ref()?.password_hash.as_deref()
    }

    /// What a visit gets at `now`. Says nothing yet of the click limit: see [`Entry::spend`].
    pub fn judge(&self, now: Timestamp) -> Verdict {
        if self.head().redirect.is_none() {
            return Verdict::Missing;
        }
        let Some(rules) = &self.head().rules else { return Verdict::Follow };
        if rules.not_before.is_some_and(|start| now < start) {
            Verdict::Missing
        } else if rules.expires_at.is_some_and(|end| now >= end) || rules.used_up() {
            Verdict::Gone
        } else if rules.password_hash.is_some() {
            Verdict::Ask
        } else {
            Verdict::Follow
        }
    }

    /// Whether it answers so often and no more.
    pub fn is_limited(&self) -> bool {
        self.head().rules.as_ref().is_some_and(|rules| rules.limit.is_some())
    }

    /// Takes one click off the limit; false when none was left.
    pub fn spend(&self) -> bool {
        match self.head().rules.as_ref().and_then(|rules| rules.limit.as_ref()) {
            None => true,
            Some((most, clicks)) => clicks
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < *most).then_some(n + 1))
                .is_ok(),
        }
    }

    fn weight(&self) -> u64 {
        let rules = self.head().rules.as_ref().map_or(0, |rules| {
            size_of::<Rules>() + rules.password_hash.as_ref().map_or(0, |hash| hash.len())
        });
        OVERHEAD_BYTES + (self.text().len() + rules) as u64
    }
}

impl Rules {
    fn used_up(&self) -> bool {
        self.limit.as_ref().is_some_and(|(most, clicks)| clicks.load(Ordering::Relaxed) >= *most)
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

/// When each code last changed: a counter a stripe of codes, and one for all.
struct Generations {
    stripes: Box<[AtomicU32]>,
    all: AtomicU32,
}

impl Generations {
    fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(), all: AtomicU32::new(0) }
    }

    /// Both counters only grow, so their sum changes with either.
    fn stamp(&self, hash: u64) -> u32 {
        let stripe = self.stripes[hash as usize % STRIPES].load(Ordering::Acquire);
        stripe.wrapping_add(self.all.load(Ordering::Acquire))
    }

    fn raise(&self, hash: u64) {
        self.stripes[hash as usize % STRIPES].fetch_add(1, Ordering::Release);
    }

    fn raise_all(&self) {
        self.all.fetch_add(1, Ordering::Release);
    }
}

/// Clicks so far of the links that have a limit, one counter a link for all workers and all
/// reloads of its entry.
#[derive(Default)]
struct Limits(Mutex<LiveCounters>);

#[derive(Default)]
struct LiveCounters {
    counters: HashMap<i64, (Arc<AtomicU64>, Instant)>,
    sweep_at: usize,
}

impl Limits {
    /// The counter of a link, starting from what the store has where there is none.
    fn counter(&self, link: i64, stored: u64) -> Arc<AtomicU64> {
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

/// By the hash of the key: the entry itself has the key, which tells it from another of the same hash.
type Shared = quick_cache::sync::Cache<u64, Entry, Weigher, BuildHasherDefault<AsIs>>;

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
struct AsIs(u64);

impl Hasher for AsIs {
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
    limits: Limits,
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
        let hasher = foldhash::quality::RandomState::default();
        let entries = (bytes > 0).then(|| {
            let entries = usize::try_from(bytes / TYPICAL_BYTES).unwrap_or(usize::MAX);
            Shared::with(entries, bytes, Weigher, BuildHasherDefault::default(), DefaultLifecycle::default())
        });
        Self { entries, hasher, generations: Generations::new(), limits: Limits::default() }
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

/// One worker's own table, four ways associative: a code has one set, and in it any slot.
pub struct Near {
    cache: Arc<Cache>,
    sets: Box<[Set]>,
    /// The last entry that no slot keeps.
    other: Option<Entry>,
    hits: u32,
    /// The slot that gives way next where a set is full.
    victim: u8,
}

/// A line of memory (64 bytes): tags tell which slot is worth following.
#[derive(Default)]
#[repr(align(64))]
struct Set {
    tags: [u32; WAYS],
    slots: [Option<Entry>; WAYS],
}

impl Near {
    /// An empty table in front of `cache`.
    pub fn new(cache: Arc<Cache>) -> Self {
        let sets = if cache.entries.is_some() { NEAR_SETS } else { 0 };
        let sets = (0..sets).map(|_| Set::default()).collect();
        Self { cache, sets, other: None, hits: 0, victim: 0 }
    }

    /// What is known of a code of the default domain; read from the store where no layer knows it.
    pub fn find(&mut self, code: &str, reader: &Reader) -> Result<(&Entry, Source), Error> {
        self.find_at(DomainId::DEFAULT, code, reader)
    }

    /// The same at a domain. The code is well-formed.
    #[inline]
    pub fn find_at(
        &mut self,
        domain: DomainId,
        code: &str,
        reader: &Reader,
    ) -> Result<(&Entry, Source), Error> {
        with_key(domain, code, move |key| self.look(key, || reader.route_at(domain, code)))
    }

    #[inline]
    fn look(
        &mut self,
        key: &[u8],
        read: impl FnOnce() -> Result<Option<Route>, Error>,
    ) -> Result<(&Entry, Source), Error> {
        let hash = self.cache.hasher.hash_one(key);
        let stamp = self.cache.generations.stamp(hash);
        if self.sets.is_empty() {
            let (entry, source) = self.cache.shared((key, hash), stamp, read)?;
            return Ok((self.other.insert(entry), source));
        }
        // The stripe is in the low bits, the tag in the high ones, the set between.
        let tag = (hash >> 32) as u32;
        let set = &mut self.sets[(hash >> 16) as usize % NEAR_SETS];
        let matching = (0..WAYS).find(|&way| set.tags[way] == tag && set.slots[way].is_some());
        let known = matching.filter(|&way| set.slots[way].as_ref().is_some_and(|entry| entry.is(key, stamp)));
        if let Some(way) = known {
            self.hits = self.hits.wrapping_add(1);
            if self.hits.is_multiple_of(TOUCH_EVERY)
                && let Some(entries) = &self.cache.entries
            {
                let _ = entries.get(&hash);
            }
            return Ok((set.slots[way].as_ref().expect("known"), Source::Cache));
        }
        let (entry, source) = self.cache.shared((key, hash), stamp, read)?;
        if entry.text().len() > NEAR_TEXT_BYTES {
            return Ok((self.other.insert(entry), source));
        }
        let way = matching.or_else(|| set.slots.iter().position(Option::is_none)).unwrap_or_else(|| {
            self.victim = self.victim.wrapping_add(1);
            usize::from(self.victim) % WAYS
        });
        set.tags[way] = tag;
        Ok((set.slots[way].insert(entry), source))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tempfile::TempDir;

    use super::*;
    use crate::code::CodePolicy;
    use crate::domains::NewDomain;
    use crate::link::{LinkPatch, NewLink};
    use crate::store::{Options, Store};
    use crate::target::TargetPolicy;

    #[test]
    fn a_long_target_stays_out_of_the_slots() {
        let bed = Bed::new(1 << 20);
        let target = format!("https://example.com/{}", "x".repeat(NEAR_TEXT_BYTES));
        let link = NewLink { code: Some("long".into()), target: target.clone(), ..NewLink::default() };
        bed.store.create(link, None).wait().unwrap();
        let mut near = Near::new(Arc::clone(&bed.cache));
        let reader = bed.store.reader().unwrap();
        for source in [Source::Store, Source::Cache, Source::Cache] {
            let (entry, from) = near.find("long", &reader).unwrap();
            assert_eq!((entry.target(), from), (target.as_bytes(), source));
        }
        assert!(near.sets.iter().flat_map(|set| &set.slots).all(Option::is_none));
    }

    /// A store that keeps a cache coherent, as a server does.
    struct Bed {
        cache: Arc<Cache>,
        store: Store,
        // Dropped after the store.
        _directory: TempDir,
    }

    impl Bed {
        fn new(bytes: u64) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let cache = Arc::new(Cache::new(bytes));
            let told = Arc::clone(&cache);
            let store = Store::open(Options {
                path: directory.path().join("links.db"),
                codes: CodePolicy::default(),
                targets: TargetPolicy::default(),
                queue: 64,
                on_change: Box::new(move |change| told.changed(&change)),
            })
            .unwrap();
            Self { cache, store, _directory: directory }
        }

        fn worker(&self) -> (Near, Reader) {
            (Near::new(Arc::clone(&self.cache)), self.store.reader().unwrap())
        }

        fn add(&self, code: &str, max_clicks: Option<u64>) {
            let target = "https://example.com/0".to_owned();
            let new = NewLink { code: Some(code.to_owned()), target, max_clicks, ..NewLink::default() };
            self.store.create(new, None).wait().unwrap();
        }

        fn aim(&self, code: &str, n: u32) {
            let target = Some(format!("https://example.com/{n}"));
            let patch = LinkPatch { target, ..LinkPatch::default() };
            self.store.edit(code.to_owned(), patch).wait().unwrap();
        }
    }

    fn target((near, reader): &mut (Near, Reader), code: &str) -> (String, Source) {
        let (entry, source) = near.find(code, reader).unwrap();
        assert_eq!(entry.key(), code.as_bytes());
        (String::from_utf8_lossy(entry.target()).into_owned(), source)
    }

    #[test]
    fn an_edit_is_seen_by_the_next_visit_on_every_worker() {
        for bytes in [1 << 20, 0] {
            let bed = Bed::new(bytes);
            bed.add("one", None);
            let mut workers = [bed.worker(), bed.worker(), bed.worker()];
            for n in 1..20 {
                bed.aim("one", n);
                for worker in &mut workers {
                    assert_eq!(target(worker, "one").0, format!("https://example.com/{n}"));
                }
            }
            bed.store.delete("one".to_owned()).wait().unwrap();
            for worker in &mut workers {
                let (entry, _) = worker.0.find("one", &worker.1).unwrap();
                assert_eq!(entry.judge(Timestamp::now()), Verdict::Missing);
            }
        }
    }

    #[test]
    fn the_same_code_at_two_domains_is_two_answers() {
        for bytes in [1 << 20, 0] {
            let bed = Bed::new(bytes);
            bed.add("one", None);
            let domains = ["a.example", "b.example"].map(|host| {
                let new = NewDomain { host: host.to_owned(), ..NewDomain::default() };
                let domain = bed.store.create_domain(new).wait().unwrap();
                let target = format!("https://example.com/{host}");
                let code = Some("one".to_owned());
                let new = NewLink { domain: Some(host.to_owned()), code, target, ..NewLink::default() };
                bed.store.create(new, None).wait().unwrap();
                domain.id
            });
            let mut workers = [bed.worker(), bed.worker()];
            let mut found = |expected: [&str; 3]| {
                for (near, reader) in &mut workers {
                    // Twice: from the store, and from where it is kept.
                    for _ in 0..2 {
                        for (domain, expected) in
                            [DomainId::DEFAULT, domains[0], domains[1]].into_iter().zip(expected)
                        {
                            let (entry, _) = near.find_at(domain, "one", reader).unwrap();
                            assert_eq!(entry.target(), expected.as_bytes(), "{domain:?}");
                        }
                    }
                }
            };
            found([
                "https://example.com/0",
                "https://example.com/a.example",
                "https://example.com/b.example",
            ]);
            bed.store.delete(LinkKey { domain: domains[0], code: "one".to_owned() }).wait().unwrap();
            found(["https://example.com/0", "", "https://example.com/b.example"]);
            bed.aim("one", 7);
            found(["https://example.com/7", "", "https://example.com/b.example"]);
            while !bed.store.delete_domain("b.example".to_owned(), true).wait().unwrap() {}
            found(["https://example.com/7", "", ""]);
        }
    }

    #[test]
    fn a_key_is_of_one_domain_and_one_code() {
        let longest = "x".repeat(code::MAX_BYTES);
        let all: Vec<_> = [0, 1, 2, 256, i64::MAX]
            .into_iter()
            .flat_map(|domain| ["a", "b", "aa", &*longest].map(|code| (DomainId(domain), code)))
            .map(|(domain, code)| with_key(domain, code, <[u8]>::to_vec))
            .collect();
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(with_key(DomainId::DEFAULT, "abc", <[u8]>::to_vec), b"abc");
        assert!(all.iter().all(|key| key.len() <= MAX_KEY_BYTES));
    }

    #[test]
    fn an_answer_is_read_once_for_all_workers_until_it_changes() {
        let bed = Bed::new(1 << 20);
        bed.add("one", None);
        let (mut first, mut second) = (bed.worker(), bed.worker());
        let source = |worker: &mut (Near, Reader), code| target(worker, code).1;
        assert_eq!(source(&mut first, "one"), Source::Store);
        assert_eq!(source(&mut first, "one"), Source::Cache);
        assert_eq!(source(&mut second, "one"), Source::Cache);
        assert_eq!(source(&mut first, "unknown"), Source::Store);
        assert_eq!(source(&mut second, "unknown"), Source::Cache);
        bed.add("unknown", None);
        assert_eq!(target(&mut second, "unknown"), ("https://example.com/0".to_owned(), Source::Store));
        assert_eq!(target(&mut first, "unknown"), ("https://example.com/0".to_owned(), Source::Cache));
        bed.cache.changed(&Change::All);
        assert_eq!(source(&mut first, "one"), Source::Store);
    }

    #[test]
    fn a_cache_that_is_off_reads_the_store_each_time() {
        let bed = Bed::new(0);
        bed.add("one", None);
        let mut worker = bed.worker();
        for _ in 0..3 {
            assert_eq!(target(&mut worker, "one").1, Source::Store);
        }
        assert!(bed.cache.is_empty());
    }

    #[test]
    fn what_is_held_stays_within_the_bytes() {
        let bytes = 64 << 10;
        let bed = Bed::new(bytes);
        let (mut near, reader) = bed.worker();
        for n in 0..5_000 {
            near.find(&format!("unknown-{n}"), &reader).unwrap();
        }
        assert!(bed.cache.bytes() <= bytes, "{}", bed.cache.bytes());
        assert!(bed.cache.len() > 50, "{}", bed.cache.len());
    }

    #[test]
    fn a_click_limit_holds_across_workers_reloads_and_evictions() {
        for bytes in [1 << 20, 0] {
            let bed = Bed::new(bytes);
            bed.add("limited", Some(100));
            let spent = |bed: &Bed| {
                let (mut near, reader) = bed.worker();
                let mut spent = 0;
                for n in 0..100 {
                    if n % 10 == 0 {
                        bed.cache.changed(&Change::All);
                        near.find("another", &reader).unwrap();
                    }
                    let (entry, _) = near.find("limited", &reader).unwrap();
                    if entry.judge(Timestamp::now()) == Verdict::Follow && entry.spend() {
                        spent += 1;
                    }
                }
                spent
            };
            let total: u32 = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| spent(&bed))).collect();
                workers.into_iter().map(|worker| worker.join().unwrap()).sum()
            });
            assert_eq!(total, 100, "cache of {bytes} bytes");
            let (mut near, reader) = bed.worker();
            let (entry, _) = near.find("limited", &reader).unwrap();
            assert_eq!(entry.judge(Timestamp::now()), Verdict::Gone);
            assert!(!entry.spend());
        }
    }

    #[test]
    fn a_load_that_races_with_an_edit_never_hides_it() {
        let bed = Bed::new(1 << 20);
        bed.add("one", None);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut worker = bed.worker();
                    while !over.load(Ordering::Relaxed) {
                        target(&mut worker, "one");
                    }
                });
            }
            let mut worker = bed.worker();
            let seen: Vec<_> = (1..=200)
                .map(|n| {
                    bed.aim("one", n);
                    target(&mut worker, "one").0
                })
                .collect();
            over.store(true, Ordering::Relaxed);
            let expected: Vec<_> = (1..=200).map(|n| format!("https://example.com/{n}")).collect();
            assert_eq!(seen, expected);
        });
    }

    #[test]
    fn a_visit_is_judged_by_status_and_dates() {
        let at = |start: Option<i64>, end: Option<i64>| (start.map(Timestamp), end.map(Timestamp));
        for ((not_before, expires_at), status, hash, expected) in [
            (at(None, None), Status::Active, None, Verdict::Follow),
            (at(None, None), Status::Disabled, None, Verdict::Missing),
            (at(Some(101), None), Status::Active, None, Verdict::Missing),
            (at(Some(100), None), Status::Active, None, Verdict::Follow),
            (at(None, Some(101)), Status::Active, None, Verdict::Follow),
            (at(None, Some(100)), Status::Active, None, Verdict::Gone),
            (at(None, None), Status::Active, Some("hash"), Verdict::Ask),
            (at(None, Some(100)), Status::Active, Some("hash"), Verdict::Gone),
        ] {
            let route = Route {
                id: 1,
                target: "https://example.com/".to_owned(),
                status,
                redirect: RedirectStatus::Found,
                forward_query: false,
                not_before,
                expires_at,
                max_clicks: None,
                clicks: 0,
                password_hash: hash.map(str::to_owned),
            };
            let entry = Entry::new(b"one", 0, Some(route.clone()), &Limits::default());
            assert_eq!(entry.judge(Timestamp(100)), expected, "{route:?}");
        }
    }
}
