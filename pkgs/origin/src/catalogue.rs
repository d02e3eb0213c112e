//! The catalogue of objects: how fresh they are, and how many bytes they take.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use crate::disk::{FILE_BYTES, Found};
use crate::error::Error;
use crate::metadata::Metadata;
use crate::object::Object;
use crate::queue::{Item, Queue, Ticket};

/// The most keys known to be missing or to fail; the oldest are forgotten first.
const MAX_FAILURES: usize = 16_384;

/// The most objects that are remembered without being stored. When there are as many, those that nobody holds are
/// forgotten.
const MAX_PASSING: usize = 1024;

/// The time in which threads close what was evicted: some of their ticks. What is open for longer is being sent to a slow
/// client, and nobody should wait for its room.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// One version of an object that is stored, partly or completely.
#[derive(Debug)]
pub struct Record {
    /// Its metadata.
    pub metadata: Arc<Metadata>,
    /// The name of its files.
    pub name: String,
    id: u64,
    ticket: Ticket,
    state: Mutex<State>,
    /// Locked while an object of it is opened, so that there is only one. `state` isn't: event loops read it, and
    /// opening may wait for the disk.
    opening: Mutex<()>,
    /// How many objects of it are open. Their bytes are freed when they are closed. Only changed under the catalogue's
    /// lock.
    open: AtomicUsize,
}

#[derive(Debug)]
struct State {
    fresh_until: Instant,
    /// When the origin last confirmed that the version is current.
    checked: Instant,
    /// When such a confirmation was last recorded on the disk.
    touched: Instant,
    live: Weak<Object>,
}

impl Item for Arc<Record> {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
    fn id(&self) -> u64 {
        self.id
    }
}

impl Record {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it can be used without asking the origin.
    pub fn is_fresh(&self) -> bool {
        Instant::now() < self.state().fresh_until
    }

    /// Whether it may still be served: its last check is less than `stale` ago.
    pub fn may_be_stale(&self, stale: Duration) -> bool {
        self.state().checked.elapsed() < stale
    }

    /// Makes it fresh for this long. `checked` says whether the origin has confirmed it. Returns whether the
    /// confirmation has to be recorded on the disk.
    pub fn refresh(&self, ttl: Duration, checked: bool) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        state.fresh_until = now + ttl;
        if !checked {
            return false;
        }
        state.checked = now;
        let is_due = state.touched.elapsed() >= ttl.max(TOUCH_EVERY);
        if is_due {
            state.touched = now;
        }
        is_due
    }

    /// Whether it was evicted or replaced.
    pub fn is_gone(&self) -> bool {
        self.ticket.is_gone()
    }

    /// Counts it as used.
    pub fn used(&self) {
        self.ticket.used();
    }

    /// Bytes on the disk.
    pub fn bytes(&self) -> u64 {
        self.ticket.bytes()
    }

    /// The object, if it is open.
    pub fn live(&self) -> Option<Arc<Object>> {
        self.state().live.upgrade()
    }
}

/// The shortest time between two records of a confirmation.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

/// The catalogue.
#[derive(Debug)]
pub struct Catalogue {
    capacity: u64,
    most: usize,
    hasher: RandomState,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    records: HashMap<Arc<str>, Arc<Record>>,
    queue: Queue<Arc<Record>>,
    /// The names of files that exist or are being made.
    names: HashSet<String>,
    /// The bytes of all files, including those without a name that are still open.
    bytes: u64,
    /// The bytes of the latter that will be free soon, and not for blocks that found no room meanwhile.
    leaving: u64,
    /// When `leaving` was last forgotten.
    forgotten: Option<Instant>,
    failures: HashMap<Arc<str>, (Instant, Error)>,
    failed: VecDeque<Arc<str>>,
    /// Objects that aren't stored, with the time until which they are fresh.
    passing: HashMap<Arc<str>, (Instant, Weak<Object>)>,
}

/// What is known about a key.
#[derive(Debug)]
pub enum Entry {
    /// This object, fresh or not.
    Record(Arc<Record>),
    /// It isn't available, as a recent look-up found.
    Failed(Error),
    /// The object isn't stored, but somebody holds it.
    Passing(Arc<Object>),
    /// Nothing is known.
    Unknown,
}

impl Catalogue {
    /// An empty catalogue for this many bytes and objects.
    pub fn new(capacity: u64, most: usize) -> Self {
        Self { capacity, most: most.max(1), hasher: RandomState::new(), inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known about a key.
    pub fn get(&self, key: &str) -> Entry {
        let inner = self.inner();
        if let Some(record) = inner.records.get(key) {
            return Entry::Record(Arc::clone(record));
        }
        let now = Instant::now();
        if let Some((_, error)) = inner.failures.get(key).filter(|(until, _)| now < *until) {
            return Entry::Failed(error.clone());
        }
        let passing = inner.passing.get(key).filter(|(until, _)| now < *until);
        let passing = passing.and_then(|(_, object)| object.upgrade());
        drop(inner);
        passing.filter(|object| !object.has_changed()).map_or(Entry::Unknown, Entry::Passing)
    }

    /// Remembers an object that isn't stored, as long as somebody holds it and it is fresh.
    pub fn passes(&self, object: &Arc<Object>, ttl: Duration) {
        let mut inner = self.inner();
        if inner.passing.len() >= MAX_PASSING {
            inner.passing.retain(|_, (_, object)| object.strong_count() > 0);
        }
        if inner.passing.len() < MAX_PASSING {
            let until = Instant::now() + ttl;
            let key = object.metadata.key.as_str().into();
            inner.failures.remove(object.metadata.key.as_str());
            inner.passing.insert(key, (until, Arc::downgrade(object)));
        }
    }

    /// The record of an object that is stored and neither evicted nor replaced.
    pub fn record_of(&self, object: &Object) -> Option<Arc<Record>> {
        let record = self.inner().records.get(object.metadata.key.as_str()).map(Arc::clone);
        record.filter(|record| object.is_stored() && Arc::ptr_eq(&record.metadata, &object.metadata))
    }

    /// Remembers for a while that a key isn't available.
    pub fn failed(&self, key: &Arc<str>, error: Error, ttl: Duration) {
        let mut inner = self.inner();
        let until = Instant::now() + ttl;
        if inner.failures.insert(Arc::clone(key), (until, error)).is_none() {
            inner.failed.push_back(Arc::clone(key));
        }
        while inner.failed.len() > MAX_FAILURES {
            let oldest = inner.failed.pop_front();
            oldest.map(|key| inner.failures.remove(&key));
        }
    }

    /// Adds an object that was found at the start, with the time of its last check.
    pub fn found(&self, found: Found, name: String) {
        let age = found.checked.elapsed().unwrap_or_default();
        let now = Instant::now();
        let checked = now.checked_sub(age).unwrap_or(now);
        let record = self.record(Arc::new(found.metadata), name.clone(), now, checked);
        let mut inner = self.inner();
        inner.names.insert(name);
        inner.put(&record, found.bytes, true);
    }

    /// Updates the size of an object that was found at the start, since another process may have written more of it.
    pub fn correct(&self, found: &Found) {
        let mut inner = self.inner();
        let known = inner.records.get(found.metadata.key.as_str()).map(Arc::clone);
        if let Some(record) = known.filter(|record| *record.metadata == found.metadata) {
            let more = found.bytes.saturating_sub(record.bytes());
            inner.queue.grow(&record.ticket, more);
            inner.bytes += more;
        }
    }

    fn record(
        &self,
        metadata: Arc<Metadata>,
        name: String,
        fresh_until: Instant,
        checked: Instant,
    ) -> Arc<Record> {
        let state = State { fresh_until, checked, touched: checked, live: Weak::new() };
        Arc::new(Record {
            id: self.hasher.hash_one(&metadata.key),
            metadata,
            name,
            ticket: Ticket::default(),
            state: Mutex::new(state),
            opening: Mutex::default(),
            open: AtomicUsize::new(0),
        })
    }

    /// Reserves a name for files that are to be made. Returns whether it was free.
    pub fn take_name(&self, name: &str) -> bool {
        self.inner().names.insert(name.to_owned())
    }

    /// Files with this name are gone.
    pub fn free_name(&self, name: &str) {
        self.inner().names.remove(name);
    }

    /// Whether there are files with this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.inner().names.contains(name)
    }

    /// Adds a version whose files were made, and which is fresh for `ttl`, as an object that `open` makes. Returns it,
    /// and what was evicted or replaced.
    pub fn insert(
        &self,
        metadata: Arc<Metadata>,
        name: String,
        ttl: Duration,
        open: impl FnOnce(&Arc<Record>) -> Arc<Object>,
    ) -> (Arc<Object>, Vec<Arc<Record>>) {
        let now = Instant::now();
        let record = self.record(metadata, name, now + ttl, now);
        // Others wait for the object, and do not take it for one that nobody uses.
        let opening = record.opening.lock().unwrap_or_else(PoisonError::into_inner);
        record.open.store(1, Ordering::Relaxed);
        let mut inner = self.inner();
        let mut out = Vec::new();
        if let Some(old) = inner.records.get(record.metadata.key.as_str()).map(Arc::clone) {
            inner.remove(&old);
            out.push(old);
        }
        inner.put(&record, 2 * FILE_BYTES, false);
        self.shrink(&mut inner, 0, Some(&record), &mut out);
        drop(inner);
        let object = open(&record);
        record.state().live = Arc::downgrade(&object);
        drop(opening);
        (object, out)
    }

    /// Makes room for this many more bytes of an object. Returns whether there is room, and what was evicted. Bytes
    /// without room aren't stored.
    pub fn reserve(&self, record: &Arc<Record>, bytes: u64) -> (bool, Vec<Arc<Record>>) {
        let mut inner = self.inner();
        let mut out = Vec::new();
        if record.is_gone() {
            return (false, out);
        }
        self.shrink(&mut inner, bytes, Some(record), &mut out);
        let fits = inner.bytes + bytes <= self.capacity;
        if fits {
            inner.queue.grow(&record.ticket, bytes);
            inner.bytes += bytes;
        } else {
            inner.leaving = inner.leaving.saturating_sub(bytes);
        }
        (fits, out)
    }

    /// Gives back reserved bytes that weren't written.
    pub fn unreserve(&self, record: &Record, bytes: u64) {
        let mut inner = self.inner();
        inner.queue.shrink(&record.ticket, bytes);
        inner.bytes = inner.bytes.saturating_sub(bytes);
        // Whoever gives them back has it open.
        if record.is_gone() {
            inner.leaving = inner.leaving.saturating_sub(bytes);
        }
    }

    /// Evicts objects until there is room for `bytes` more, but never evicts `not`.
    fn shrink(&self, inner: &mut Inner, bytes: u64, not: Option<&Arc<Record>>, out: &mut Vec<Arc<Record>>) {
        // The bytes of an open object are freed only when it is closed, so objects that aren't open are evicted first.
        // Open ones are evicted until there will be room once they are closed. Each block that finds no room until then
        // evicts as much as it would have taken.
        let now = Instant::now();
        if inner.forgotten.is_none_or(|forgotten| now >= forgotten + CLOSED_WITHIN) {
            inner.forgotten = Some(now);
            inner.leaving = 0;
        }
        for open_too in [false, true] {
            loop {
                let freed = if open_too { inner.leaving } else { 0 };
                let is_full = inner.bytes.saturating_sub(freed) + bytes > self.capacity;
                if !is_full && inner.queue.len() <= self.most {
                    break;
                }
                let may = |record: &Arc<Record>| {
                    not.is_none_or(|not| !Arc::ptr_eq(not, record))
                        && (open_too || record.open.load(Ordering::Relaxed) == 0)
                };
                let Some(record) = inner.queue.evict(may) else { break };
                inner.gone(&record);
                out.push(record);
            }
        }
    }

    /// Evicts what exceeds the limits, for instance at the start if the cache was made smaller.
    pub fn trim(&self) -> Vec<Arc<Record>> {
        let mut out = Vec::new();
        self.shrink(&mut self.inner(), 0, None, &mut out);
        out
    }

    /// Removes a version. Returns whether it was there.
    pub fn remove(&self, record: &Arc<Record>) -> bool {
        let mut inner = self.inner();
        let was_in = !record.is_gone();
        if was_in {
            inner.remove(record);
        }
        was_in
    }

    /// A record's object: the one that is open, or one that `open` makes. None if the record has been removed, or if
    /// another thread is opening the object and this one may not `wait` for that.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<E>(
        &self,
        record: &Arc<Record>,
        wait: bool,
        open: impl FnOnce() -> Result<Arc<Object>, E>,
    ) -> Result<Option<Arc<Object>>, E> {
        if let Some(object) = record.live() {
            return Ok(Some(object));
        }
        let opening = &record.opening;
        let locked = if wait { opening.lock().map_err(TryLockError::from) } else { opening.try_lock() };
        let _opening = match locked {
            Ok(opening) => opening,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        if let Some(object) = record.live() {
            return Ok(Some(object));
        }
        {
            let _inner = self.inner();
            if record.is_gone() {
                return Ok(None);
            }
            record.open.fetch_add(1, Ordering::Relaxed);
        }
        match open() {
            Ok(object) => {
                record.state().live = Arc::downgrade(&object);
                Ok(Some(object))
            }
            Err(error) => {
                self.closed(record);
                Err(error)
            }
        }
    }

    /// An open object has been closed.
    pub fn closed(&self, record: &Record) {
        let mut inner = self.inner();
        let was = record.open.fetch_sub(1, Ordering::Relaxed);
        if was == 1 && record.is_gone() {
            inner.bytes = inner.bytes.saturating_sub(record.bytes());
            inner.leaving = inner.leaving.saturating_sub(record.bytes());
        }
    }

    /// The bytes of all files, and the number of objects.
    pub fn size(&self) -> (u64, usize) {
        let inner = self.inner();
        (inner.bytes, inner.records.len())
    }
}

impl Inner {
    fn put(&mut self, record: &Arc<Record>, bytes: u64, proven: bool) {
        self.failures.remove(record.metadata.key.as_str());
        self.passing.remove(record.metadata.key.as_str());
        self.queue.insert(Arc::clone(record), proven);
        self.queue.grow(&record.ticket, bytes);
        self.bytes += bytes;
        self.records.insert(record.metadata.key.as_str().into(), Arc::clone(record));
    }

    fn remove(&mut self, record: &Arc<Record>) {
        self.queue.remove(&record.ticket);
        self.gone(record);
    }

    /// Records that an item is no longer in any queue.
    fn gone(&mut self, record: &Arc<Record>) {
        let key = record.metadata.key.as_str();
        if self.records.get(key).is_some_and(|known| Arc::ptr_eq(known, record)) {
            self.records.remove(key);
        }
        if record.open.load(Ordering::Relaxed) == 0 {
            self.bytes = self.bytes.saturating_sub(record.bytes());
        } else {
            self.leaving += record.bytes();
        }
    }
}
