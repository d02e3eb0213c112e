//! Which objects there are, how fresh they are, and how many bytes they take.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::disk::{FILE_BYTES, Found};
use crate::error::Error;
use crate::metadata::Metadata;
use crate::object::Object;
use crate::queue::{Item, Queue, Ticket};

/// Keys that are known to be missing, or to fail; the oldest are forgotten first.
const MAX_FAILURES: usize = 16_384;

/// Objects that are not stored and are remembered for as long as somebody has them; those of no one are forgotten beyond.
const MAX_PASSING: usize = 1024;

/// One version of an object that is stored, in part or whole.
#[derive(Debug)]
pub struct Record {
    /// What is known of it.
    pub metadata: Arc<Metadata>,
    /// What its files are called.
    pub name: String,
    id: u64,
    ticket: Ticket,
    state: Mutex<State>,
    /// How many objects of it are open, whose bytes are freed later; changed under the catalogue's lock alone.
    open: AtomicUsize,
}

#[derive(Debug)]
struct State {
    fresh_until: Instant,
    /// When the origin last said that it is current.
    checked: Instant,
    /// When that was last written down.
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

    /// Whether it counts without asking the origin.
    pub fn is_fresh(&self) -> bool {
        Instant::now() < self.state().fresh_until
    }

    /// Whether it may be served `stale` after its last check.
    pub fn may_be_stale(&self, stale: Duration) -> bool {
        self.state().checked.elapsed() < stale
    }

    /// It counts for so long from now. `checked` is whether the origin has said so. Returns whether that is to be written
    /// down.
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

    /// It was asked for.
    pub fn used(&self) {
        self.ticket.used();
    }

    /// Bytes on the disk.
    pub fn bytes(&self) -> u64 {
        self.ticket.bytes()
    }

    /// The object, where it is open.
    pub fn live(&self) -> Option<Arc<Object>> {
        self.state().live.upgrade()
    }
}

/// How often it is written down that the origin was asked, at most.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

/// The objects.
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
    /// Of files that are there, or are being made.
    names: HashSet<String>,
    /// Bytes of all files, those without a name that are still open too.
    bytes: u64,
    failures: HashMap<Arc<str>, (Instant, Error)>,
    failed: VecDeque<Arc<str>>,
    /// Objects that are not stored, and until when they count.
    passing: HashMap<Arc<str>, (Instant, Weak<Object>)>,
}

/// What is known of a key.
#[derive(Debug)]
pub enum Entry {
    /// This object, fresh or not.
    Record(Arc<Record>),
    /// It is not to be had, which was found out lately.
    Failed(Error),
    /// It is not stored, and somebody has it.
    Passing(Arc<Object>),
    /// Nothing.
    Unknown,
}

impl Catalogue {
    /// An empty one, for so many bytes and objects.
    pub fn new(capacity: u64, most: usize) -> Self {
        Self { capacity, most: most.max(1), hasher: RandomState::new(), inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a key.
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

    /// Remembers an object that is not stored, for as long as somebody has it and it counts.
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

    /// The record of an object that is stored, and neither evicted nor replaced.
    pub fn record_of(&self, object: &Object) -> Option<Arc<Record>> {
        let record = self.inner().records.get(object.metadata.key.as_str()).map(Arc::clone);
        record.filter(|record| object.is_stored() && Arc::ptr_eq(&record.metadata, &object.metadata))
    }

    /// Remembers that a key is not to be had, for a while.
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

    /// Takes in what was found at start: what counts now, with the time of its last check.
    pub fn found(&self, found: Found, name: String) {
        let age = found.checked.elapsed().unwrap_or_default();
        let now = Instant::now();
        let checked = now.checked_sub(age).unwrap_or(now);
        let record = self.record(Arc::new(found.metadata), name.clone(), now, checked);
        let mut inner = self.inner();
        inner.names.insert(name);
        inner.put(&record, found.bytes, true);
    }

    /// Takes in how much another process has written of what was found at start.
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
            open: AtomicUsize::new(0),
        })
    }

    /// Takes a name for files that are to be made. Returns whether it was free.
    pub fn take_name(&self, name: &str) -> bool {
        self.inner().names.insert(name.to_owned())
    }

    /// Files of this name are gone.
    pub fn free_name(&self, name: &str) {
        self.inner().names.remove(name);
    }

    /// Whether there are files of this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.inner().names.contains(name)
    }

    /// Takes in a version whose files were made, and counts for `ttl`. Returns what is no longer in.
    pub fn insert(
        &self,
        metadata: Arc<Metadata>,
        name: String,
        ttl: Duration,
    ) -> (Arc<Record>, Vec<Arc<Record>>) {
        let now = Instant::now();
        let record = self.record(metadata, name, now + ttl, now);
        let mut inner = self.inner();
        let mut out = Vec::new();
        if let Some(old) = inner.records.get(record.metadata.key.as_str()).map(Arc::clone) {
            inner.remove(&old);
            out.push(old);
        }
        inner.put(&record, 2 * FILE_BYTES, false);
        self.shrink(&mut inner, 0, Some(&record), &mut out);
        (record, out)
    }

    /// Makes room for so many bytes more of an object. Returns whether there is, and what had to go. What does not find
    /// room is not stored.
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
        }
        (fits, out)
    }

    /// Bytes that were reserved are not written.
    pub fn unreserve(&self, record: &Record, bytes: u64) {
        let mut inner = self.inner();
        inner.queue.shrink(&record.ticket, bytes);
        inner.bytes = inner.bytes.saturating_sub(bytes);
    }

    /// Evicts until there is room for `bytes` more; not this one.
    fn shrink(&self, inner: &mut Inner, bytes: u64, not: Option<&Arc<Record>>, out: &mut Vec<Arc<Record>>) {
        // What is open is freed only when it is closed: first what is not.
        for open_too in [false, true] {
            while inner.bytes + bytes > self.capacity || inner.queue.len() > self.most {
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

    /// Evicts what is beyond the bounds, as a cache that was made smaller has at start.
    pub fn trim(&self) -> Vec<Arc<Record>> {
        let mut out = Vec::new();
        self.shrink(&mut self.inner(), 0, None, &mut out);
        out
    }

    /// Removes a version. Returns whether it was in.
    pub fn remove(&self, record: &Arc<Record>) -> bool {
        let mut inner = self.inner();
        let was_in = !record.is_gone();
        if was_in {
            inner.remove(record);
        }
        was_in
    }

    /// The object of a record: the one that is open, or one that `open` makes. None where the record is no longer in.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<E>(
        &self,
        record: &Arc<Record>,
        open: impl FnOnce() -> Result<Arc<Object>, E>,
    ) -> Result<Option<Arc<Object>>, E> {
        let mut state = record.state();
        if let Some(object) = state.live.upgrade() {
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
                state.live = Arc::downgrade(&object);
                Ok(Some(object))
            }
            Err(error) => {
                drop(state);
                self.closed(record);
                Err(error)
            }
        }
    }

    /// An object that was open is closed.
    pub fn closed(&self, record: &Record) {
        let mut inner = self.inner();
        let was = record.open.fetch_sub(1, Ordering::Relaxed);
        if was == 1 && record.is_gone() {
            inner.bytes = inner.bytes.saturating_sub(record.bytes());
        }
    }

    /// Bytes of all files, and how many objects there are.
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

    /// It is in no queue any more.
    fn gone(&mut self, record: &Arc<Record>) {
        let key = record.metadata.key.as_str();
        if self.records.get(key).is_some_and(|known| Arc::ptr_eq(known, record)) {
            self.records.remove(key);
        }
        if record.open.load(Ordering::Relaxed) == 0 {
            self.bytes = self.bytes.saturating_sub(record.bytes());
        }
    }
}
