//! Lookups and fetches, one at a time for each key and block, by threads of their own.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use service::metrics::Registry;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{timeout, timeout_at};

use crate::BLOCK_BYTES;
use crate::blocks::{self, Blocks};
use crate::catalogue::{Catalogue, Entry, Record};
use crate::disk::{Directory, FILE_BYTES, Files};
use crate::error::Error;
use crate::metadata::{MAX_KEY_BYTES, Metadata};
use crate::metrics::Metrics;
use crate::object::{Fetched, Flight, Lease, Object};
use crate::remote::{Look, Part, Remote};
use crate::settings::{Settings, StartError};

/// Threads that talk to the origin; they wait for nothing else.
const THREADS: usize = 2;

/// Threads that wait for the disk.
const DISK_THREADS: usize = 8;

/// Keys that are being looked at; others wait.
const LOOKS: usize = 64;

/// Keys that are being looked at or wait; further ones are refused.
const MAX_LOOKS: usize = 4096;

/// Blocks that are fetched ahead of the one that is waited for, where there is memory.
const AHEAD: u32 = 4;

/// An object that is stale is served after this time, while the origin is still being asked.
const STALE_AFTER: Duration = Duration::from_secs(1);

/// Where the origin fails, it is asked about the same key again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The same where there is nothing to serve instead.
const FAIL_AGAIN: Duration = Duration::from_secs(1);

/// How often an object is looked up anew that was evicted before it was opened.
const TRIES: usize = 4;

/// How often it is tried to have the directory alone.
const CLAIM_EVERY: Duration = Duration::from_secs(2);

/// What a lookup that does not wait says.
#[derive(Debug)]
pub enum Known {
    /// This.
    Object(Arc<Object>),
    /// It is not to be had.
    Failed(Error),
    /// The origin, or the disk, has to be asked.
    Unknown,
}

/// An origin and its cache. Handles are cheap; the threads end with the last.
#[derive(Clone, Debug)]
pub struct Origin {
    inner: Arc<Inner>,
    _threads: Arc<Threads>,
}

/// What its threads share.
#[derive(Debug)]
pub struct Inner {
    settings: Settings,
    /// Of which bucket files are, in their names.
    bucket: String,
    remote: Remote,
    directory: Directory,
    /// Whether the directory is this process's alone. Until it is, nothing in it is made or removed.
    alone: AtomicBool,
    /// Held while names come and go, so that what is written down is of the files that have the name.
    names: Mutex<()>,
    catalogue: Catalogue,
    metrics: Arc<Metrics>,
    looks: Mutex<HashMap<Arc<str>, Looking>>,
    look_permits: Arc<Semaphore>,
    /// One for each block in memory.
    blocks: Arc<Semaphore>,
    /// How often something was evicted.
    evictions: AtomicU64,
    /// Whether it is logged that there is no room.
    is_full: AtomicBool,
    handle: Handle,
}

type Looking = watch::Receiver<Option<Result<Arc<Object>, Error>>>;

#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        // What is under way ends where it is: all that is stored is whole blocks.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Bytes in memory, counted until they are dropped.
struct Counted {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Origin {
    /// Opens the cache, finds what is in it, and starts its threads. The origin is not asked.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let least = BLOCK_BYTES + 2 * FILE_BYTES;
        if settings.capacity < least {
            return Err(StartError::Capacity(least));
        }
        let remote = Remote::new(&settings)?;
        Self::of(settings, remote)
    }

    fn of(settings: Settings, remote: Remote) -> Result<Self, StartError> {
        let failed = |source| StartError::File { path: settings.directory.clone(), source };
        let directory = Directory::open(&settings.directory).map_err(failed)?;
        let bucket = format!(
            "{} {} {}",
            settings.endpoint.as_deref().unwrap_or_default().trim_end_matches('/'),
            settings.bucket.name,
            settings.bucket.prefix
        );
        let catalogue = Catalogue::new(settings.capacity, settings.objects);
        let alone = directory.claim();
        for found in directory.scan(&bucket, alone).map_err(failed)? {
            let name = found.metadata.name(&bucket);
            catalogue.found(found, name);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(DISK_THREADS)
            .thread_name("origin")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let permits = usize::try_from(settings.memory.div_ceil(BLOCK_BYTES)).unwrap_or(usize::MAX);
        let inner = Arc::new(Inner {
            bucket,
            remote,
            directory,
            alone: AtomicBool::new(alone),
            names: Mutex::default(),
            catalogue,
            metrics: Arc::default(),
            looks: Mutex::default(),
            look_permits: Arc::new(Semaphore::new(LOOKS)),
            blocks: Arc::new(Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS))),
            evictions: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            handle: runtime.handle().clone(),
            settings,
        });
        if alone {
            inner.catalogue.trim().iter().for_each(|record| inner.forget(record));
        } else {
            inner.handle.spawn(Inner::claim(Arc::clone(&inner)));
        }
        Ok(Self { inner, _threads: Arc::new(Threads(Some(runtime))) })
    }

    /// Has this done by its threads.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.inner.handle.spawn(future);
    }

    /// What is known of a key, without waiting for anything.
    pub fn known(&self, key: &str) -> Known {
        self.inner.known(key)
    }

    /// What there is of a key. With `bytes` its first block is fetched with it, where the origin has to be asked.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn find(&self, key: &str, bytes: bool) -> Result<Arc<Object>, Error> {
        Inner::find(&self.inner, key, bytes).await
    }

    /// Sees to it that the block in which `wanted` begins is there, and begins with those that follow it, as far as
    /// `wanted` goes.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn fetch(&self, object: &Arc<Object>, wanted: Range<u64>) -> Result<Fetched, Error> {
        Inner::fetch(&self.inner, object, wanted).await
    }

    /// How often something was evicted: whoever keeps objects open may look for what [is gone](Object::is_gone).
    pub fn evictions(&self) -> u64 {
        self.inner.evictions.load(Ordering::Relaxed)
    }

    /// Bytes of the cache on the disk, and how many objects there are.
    pub fn size(&self) -> (u64, usize) {
        self.inner.catalogue.size()
    }

    /// Shows its metrics.
    pub fn register(&self, registry: &mut Registry) {
        // The threads end with the last handle, and this is none.
        let inner = Arc::downgrade(&self.inner);
        let size = move || inner.upgrade().map_or((0, 0), |inner| inner.catalogue.size());
        self.inner.metrics.register(registry, size);
    }
}

impl Inner {
    fn known(self: &Arc<Self>, key: &str) -> Known {
        if key.len() > MAX_KEY_BYTES {
            return Known::Failed(Error::Missing);
        }
        match self.catalogue.get(key) {
            Entry::Record(record) if record.is_fresh() => {
                record.used();
                match self.open(&record, false) {
                    Ok(Some(object)) => {
                        self.metrics.hits.add(1);
                        Known::Object(object)
                    }
                    _ => Known::Unknown,
                }
            }
            Entry::Failed(error) => Known::Failed(error),
            Entry::Passing(object) => Known::Object(object),
            Entry::Record(_) | Entry::Unknown => Known::Unknown,
        }
    }

    /// The object of a record; none where that is no longer in the catalogue.
    fn open(self: &Arc<Self>, record: &Arc<Record>, wait: bool) -> io::Result<Option<Arc<Object>>> {
        self.catalogue.open(record, || {
            let (files, blocks) = self.directory.reopen(&record.name, &record.metadata, wait)?;
            let metadata = Arc::clone(&record.metadata);
            Ok(Object::new(metadata, files, blocks, Some(self.lease(record))))
        })
    }

    async fn open_waiting(self: &Arc<Self>, record: &Arc<Record>) -> Result<Option<Arc<Object>>, Error> {
        let (this, of) = (Arc::clone(self), Arc::clone(record));
        let opened = self.handle.spawn_blocking(move || this.open(&of, true)).await;
        match opened.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())) {
            Ok(opened) => Ok(opened),
            Err(error) if is_short(&error) => Err(error.into()),
            Err(error) => {
                // Somebody has changed the directory: what is left of it is fetched anew.
                tracing::warn!(key = record.metadata.key, %error, "an object of the cache is fetched anew");
                self.drop_record(record).await;
                Ok(None)
            }
        }
    }

    async fn find(this: &Arc<Self>, key: &str, bytes: bool) -> Result<Arc<Object>, Error> {
        for _ in 0..TRIES {
            let known = match this.known(key) {
                Known::Object(object) => return Ok(object),
                Known::Failed(error) => return Err(error),
                Known::Unknown => match this.catalogue.get(key) {
                    Entry::Record(record) => Some(record),
                    _ => None,
                },
            };
            if let Some(record) = known.as_ref().filter(|record| record.is_fresh()) {
                match this.open_waiting(record).await? {
                    Some(object) => return Ok(object),
                    None => continue,
                }
            }
            let mut looking = this.look(key, bytes)?;
            let stale = known.filter(|record| record.may_be_stale(this.settings.stale));
            let told = async { looking.wait_for(Option::is_some).await.ok().and_then(|told| told.clone()) };
            let told = match &stale {
                Some(_) => timeout(STALE_AFTER, told).await.ok(),
                None => Some(told.await),
            };
            match (told, stale) {
                (Some(told), _) => return told.unwrap_or(Err(Error::Busy)),
                (None, Some(record)) => {
                    if let Some(object) = this.open_waiting(&record).await? {
                        this.metrics.stale.add(1);
                        return Ok(object);
                    }
                }
                (None, None) => {}
            }
        }
        Err(Error::Busy)
    }

    /// Joins the lookup of a key, or begins one, which goes on whoever waits for it.
    fn look(self: &Arc<Self>, key: &str, bytes: bool) -> Result<Looking, Error> {
        let mut looks = self.looks();
        if let Some(looking) = looks.get(key) {
            return Ok(looking.clone());
        }
        if looks.len() >= MAX_LOOKS {
            self.metrics.failed(&Error::Busy);
            return Err(Error::Busy);
        }
        let key: Arc<str> = key.into();
        let (tell, looking) = watch::channel(None);
        looks.insert(Arc::clone(&key), looking.clone());
        let this = Arc::clone(self);
        let ends = Ends { this: Arc::clone(self), key: Arc::clone(&key) };
        self.handle.spawn(async move {
            let result = this.look_now(&key, bytes).await;
            // Whoever comes from here on asks the catalogue.
            drop(ends);
            tell.send_replace(Some(result));
        });
        Ok(looking)
    }

    fn looks(&self) -> MutexGuard<'_, HashMap<Arc<str>, Looking>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_now(self: &Arc<Self>, key: &Arc<str>, bytes: bool) -> Result<Arc<Object>, Error> {
        let known = match self.catalogue.get(key) {
            Entry::Record(record) => Some(record),
            _ => None,
        };
        let etag = known.as_ref().map(|record| record.metadata.etag.as_str());
        let until = Instant::now() + self.settings.block_timeout;
        let looked = async {
            let _permit = self.look_permits.acquire().await.map_err(|_| Error::Busy)?;
            self.remote.look(key, etag, bytes).await
        };
        let looked = timeout_at(until.into(), looked).await.unwrap_or(Err(Error::TimedOut));
        let error = match (looked, &known) {
            (Ok(Look::Same), Some(record)) => {
                self.metrics.unchanged.add(1);
                if record.refresh(self.settings.ttl, true) {
                    let (this, name) = (Arc::clone(self), record.name.clone());
                    self.handle.spawn_blocking(move || this.directory.touch(&name));
                }
                match self.open_waiting(record).await? {
                    Some(object) => return Ok(object),
                    None => Error::Busy,
                }
            }
            (Ok(Look::Same), None) => {
                Error::Answer("it is said to be as it was, and was not known".to_owned())
            }
            // A server that does not know If-None-Match sends what was there already.
            (Ok(Look::There(metadata, _)), Some(record)) if metadata == *record.metadata => {
                self.metrics.looks.add(1);
                record.refresh(self.settings.ttl, true);
                match self.open_waiting(record).await? {
                    Some(object) => return Ok(object),
                    None => Error::Busy,
                }
            }
            (Ok(Look::There(metadata, part)), _) => {
                self.metrics.looks.add(1);
                return self.take_in(metadata, part).await;
            }
            (Err(error), _) => error,
        };
        self.metrics.failed(&error);
        if !matches!(error, Error::Missing) {
            tracing::warn!(key = &**key, %error, "the origin was asked in vain");
        }
        match known {
            Some(record) if error.allows_stale() && record.may_be_stale(self.settings.stale) => {
                record.refresh(ASK_AGAIN.min(self.settings.ttl), false);
                if let Some(object) = self.open_waiting(&record).await? {
                    self.metrics.stale.add(1);
                    return Ok(object);
                }
            }
            // It is gone, or nothing has been known of it for too long.
            Some(record) if !error.allows_stale() => self.drop_record(&record).await,
            _ => {}
        }
        if error == Error::Busy {
            return Err(error);
        }
        let ttl = if error == Error::Missing { self.settings.missing_ttl } else { FAIL_AGAIN };
        self.catalogue.failed(key, error.clone(), ttl);
        Err(error)
    }

    /// Takes in another version of an object, and its first block.
    async fn take_in(self: &Arc<Self>, metadata: Metadata, part: Option<Part>) -> Result<Arc<Object>, Error> {
        if blocks::count(metadata.size).is_none() {
            return Err(Error::Answer("it is larger than any object".to_owned()));
        }
        let metadata = Arc::new(metadata);
        let (this, of) = (Arc::clone(self), Arc::clone(&metadata));
        let object = self.handle.spawn_blocking(move || this.make(of)).await;
        let object = object.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        if let Some(part) = part {
            object.join(0, |tell| self.begin(Arc::clone(&object), 0, Source::Part(part), tell));
        }
        Ok(object)
    }

    /// Makes the files of an object. One that finds no room is not stored.
    fn make(self: &Arc<Self>, metadata: Arc<Metadata>) -> io::Result<Arc<Object>> {
        let fits = metadata.size <= self.settings.capacity.saturating_sub(2 * FILE_BYTES);
        if fits && self.alone.load(Ordering::Relaxed) {
            let name = metadata.name(&self.bucket);
            if self.catalogue.take_name(&name) {
                match self.directory.create(&name, &metadata) {
                    Ok(files) => return Ok(self.opened(metadata, name, files)),
                    Err(error) => {
                        self.catalogue.free_name(&name);
                        self.no_room(&error);
                    }
                }
            }
        }
        let data = Directory::anonymous(&metadata)?;
        let blocks = Blocks::none(metadata.size);
        let files = Files { data, marks: None };
        // What it was until now is not what there is.
        if let Entry::Record(old) = self.catalogue.get(&metadata.key) {
            self.drop_now(&old);
        }
        let object = Object::new(metadata, files, blocks, None);
        self.catalogue.passes(&object, self.settings.ttl);
        Ok(object)
    }

    fn opened(self: &Arc<Self>, metadata: Arc<Metadata>, name: String, files: Files) -> Arc<Object> {
        let (record, out) = self.catalogue.insert(Arc::clone(&metadata), name, self.settings.ttl);
        out.iter().for_each(|record| self.forget(record));
        let blocks = Blocks::none(metadata.size);
        let make = || -> Result<_, std::convert::Infallible> {
            let lease = self.lease(&record);
            Ok(Object::new(Arc::clone(&metadata), files, blocks, Some(lease)))
        };
        let Ok(opened) = self.catalogue.open(&record, make);
        opened.expect("what was just taken in is not evicted by itself")
    }

    /// Removes the files of what is no longer in the catalogue.
    fn forget(&self, record: &Record) {
        {
            let _names = self.names();
            if self.alone.load(Ordering::Relaxed) {
                self.directory.remove(&record.name);
            }
            self.catalogue.free_name(&record.name);
        }
        self.metrics.evicted.add(1);
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    fn names(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_now(&self, record: &Arc<Record>) {
        if self.catalogue.remove(record) {
            self.forget(record);
        }
    }

    async fn drop_record(self: &Arc<Self>, record: &Arc<Record>) {
        let (this, of) = (Arc::clone(self), Arc::clone(record));
        let _ = self.handle.spawn_blocking(move || this.drop_now(&of)).await;
    }

    /// The place of a record's object in the catalogue.
    fn lease(self: &Arc<Self>, record: &Arc<Record>) -> Box<dyn Lease> {
        Box::new(Leased { record: Arc::clone(record), origin: Arc::downgrade(self) })
    }

    fn no_room(&self, error: &io::Error) {
        if !self.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "the cache directory takes no more: objects are passed on as they come");
        }
    }

    async fn fetch(this: &Arc<Self>, object: &Arc<Object>, wanted: Range<u64>) -> Result<Fetched, Error> {
        let size = object.metadata.size;
        let range = wanted.start..wanted.end.min(size);
        let first = blocks::index(range.start);
        if range.is_empty() || object.has(first) {
            // What follows is fetched while this is sent.
            Self::ahead(this, object, first, &range);
            return Ok(Fetched::Stored);
        }
        if object.has_changed() {
            return Err(Error::Changed);
        }
        let mut flight = this.join(object, first);
        Self::ahead(this, object, first, &range);
        let told = flight.wait_for(Option::is_some).await;
        told.ok().and_then(|told| told.clone()).unwrap_or(Err(Error::Busy))
    }

    fn join(self: &Arc<Self>, object: &Arc<Object>, index: u32) -> Flight {
        object.join(index, |tell| self.begin(Arc::clone(object), index, Source::Ask(None), tell))
    }

    /// Begins with the blocks after one, as far as somebody wants them, there is memory, and they are stored.
    fn ahead(this: &Arc<Self>, object: &Arc<Object>, first: u32, wanted: &Range<u64>) {
        if object.is_whole() || object.is_gone() || object.has_changed() || wanted.is_empty() {
            return;
        }
        let last = blocks::index(wanted.end - 1).min(first.saturating_add(AHEAD));
        for index in first.saturating_add(1)..=last {
            if object.has(index) || object.is_under_way(index) {
                continue;
            }
            let Ok(permit) = Arc::clone(&this.blocks).try_acquire_owned() else { return };
            object.join(index, |tell| {
                this.begin(Arc::clone(object), index, Source::Ask(Some(permit)), tell);
            });
        }
    }

    /// Begins a flight, which goes on whoever waits for it.
    fn begin(
        self: &Arc<Self>,
        object: Arc<Object>,
        index: u32,
        source: Source,
        tell: watch::Sender<Option<Result<Fetched, Error>>>,
    ) {
        let this = Arc::clone(self);
        let lands = Lands { object: Arc::clone(&object), index };
        self.handle.spawn(async move {
            let mut result = this.fetch_block(&object, index, source).await;
            if let Err(error) = &mut result {
                if matches!(error, Error::Failed(_) | Error::Answer(_)) && this.is_another(&object).await {
                    *error = Error::Changed;
                }
                if *error == Error::Changed {
                    object.change();
                    if let Some(record) = this.catalogue.record_of(&object) {
                        this.drop_record(&record).await;
                    }
                }
                this.metrics.failed(error);
                tracing::warn!(key = object.metadata.key, block = index, %error, "a block was not fetched");
            }
            // Whoever comes from here on finds it in the file, or asks anew.
            drop(lands);
            tell.send_replace(Some(result));
        });
    }

    /// Whether the origin says of a key something else than what an object was made of.
    async fn is_another(&self, object: &Object) -> bool {
        match self.remote.look(&object.metadata.key, None, false).await {
            Ok(Look::There(metadata, _)) => metadata != *object.metadata,
            Err(error) => error == Error::Missing,
            Ok(Look::Same) => false,
        }
    }

    async fn fetch_block(
        self: &Arc<Self>,
        object: &Arc<Object>,
        index: u32,
        source: Source,
    ) -> Result<Fetched, Error> {
        let until = Instant::now() + self.remote.block_timeout();
        let fetched = async {
            let permit = |permit: Option<OwnedSemaphorePermit>| async {
                match permit {
                    Some(permit) => Ok(permit),
                    None => Arc::clone(&self.blocks).acquire_owned().await.map_err(|_| Error::Busy),
                }
            };
            let range = blocks::range(index, object.metadata.size);
            let (permit, part) = match source {
                Source::Part(part) => (permit(None).await?, part),
                Source::Ask(given) => {
                    let permit = permit(given).await?;
                    (permit, self.remote.part(&object.metadata, range.clone()).await?)
                }
            };
            if part.range() != range {
                return Err(Error::Answer("it has other bytes than were asked for".to_owned()));
            }
            let bytes = part.read().await?;
            Ok((permit, bytes))
        };
        let (permit, bytes) = timeout_at(until.into(), fetched).await.unwrap_or(Err(Error::TimedOut))?;
        self.metrics.blocks.add(1);
        self.metrics.bytes.add(bytes.len() as u64);
        let (this, of) = (Arc::clone(self), Arc::clone(object));
        let bytes = Bytes::from_owner(Counted { bytes, _permit: permit });
        let block = bytes.clone();
        let stored = self.handle.spawn_blocking(move || this.store(&of, index, &block)).await;
        if matches!(stored, Ok(true)) {
            return Ok(Fetched::Stored);
        }
        self.metrics.passed.add(1);
        Ok(Fetched::Passed(u64::from(index) * BLOCK_BYTES, bytes))
    }

    /// Writes a block into the file. Returns whether it is there.
    fn store(&self, object: &Object, index: u32, bytes: &[u8]) -> bool {
        if !self.alone.load(Ordering::Relaxed) {
            return false;
        }
        let Some(record) = self.catalogue.record_of(object) else { return false };
        let room = (bytes.len() as u64).next_multiple_of(FILE_BYTES);
        let (fits, out) = self.catalogue.reserve(&record, room);
        out.iter().for_each(|record| self.forget(record));
        if !fits {
            return false;
        }
        match object.write(index, bytes) {
            Ok(last) => {
                self.is_full.store(false, Ordering::Relaxed);
                if last && let Err(error) = self.finish(object, &record) {
                    let key = object.metadata.key.as_str();
                    tracing::warn!(key, %error, "an object would not outlast a loss of power");
                }
                true
            }
            Err(error) => {
                self.catalogue.unreserve(&record, room);
                self.no_room(&error);
                false
            }
        }
    }

    /// An object is whole: that is made to last.
    fn finish(&self, object: &Object, record: &Record) -> io::Result<()> {
        object.sync()?;
        let _names = self.names();
        // Evicted, its name may be another's by now.
        if record.is_gone() { Ok(()) } else { self.directory.finish(&record.name, &object.metadata) }
    }

    /// Waits until the process before this one has let go of the directory, and removes what it has left.
    async fn claim(this: Arc<Self>) {
        tracing::info!("another process has the cache directory: it is shared until that ends");
        loop {
            tokio::time::sleep(CLAIM_EVERY).await;
            if this.directory.claim() {
                break;
            }
        }
        let of = Arc::clone(&this);
        let swept = this.handle.spawn_blocking(move || {
            of.directory.sweep(|name| of.catalogue.has_name(name))?;
            for found in of.directory.scan(&of.bucket, true)? {
                of.catalogue.correct(&found);
            }
            of.alone.store(true, Ordering::Relaxed);
            of.catalogue.trim().iter().for_each(|record| of.forget(record));
            io::Result::Ok(())
        });
        match swept.await {
            Ok(Ok(())) => tracing::info!("the cache directory is this process's alone"),
            Ok(Err(error)) => tracing::warn!(%error, "the cache directory stays as another process left it"),
            Err(_) => {}
        }
    }
}

/// What an object has in the catalogue.
struct Leased {
    record: Arc<Record>,
    origin: Weak<Inner>,
}

impl Lease for Leased {
    fn is_gone(&self) -> bool {
        self.record.is_gone()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if let Some(origin) = self.origin.upgrade() {
            origin.catalogue.closed(&self.record);
        }
    }
}

/// Where a block comes from.
enum Source {
    /// It is on its way.
    Part(Part),
    /// It has to be asked for; with a permit where that is had.
    Ask(Option<OwnedSemaphorePermit>),
}

/// Ends a lookup, even one that panics.
struct Ends {
    this: Arc<Inner>,
    key: Arc<str>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.this.looks().remove(&self.key);
    }
}

/// Ends a flight, even one that panics.
struct Lands {
    object: Arc<Object>,
    index: u32,
}

impl Drop for Lands {
    fn drop(&mut self) {
        self.object.landed(self.index);
    }
}

/// Whether the process, not the directory, lacks something.
fn is_short(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM))
}
