//! Look-ups and fetches, one at a time per key and block, on their own threads.

mod fetch;
mod lookup;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use service::logs::LogLimit;
use service::metrics::Registry;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::BLOCK_BYTES;
use crate::catalogue::{Catalogue, Record};
use crate::disk::{Directory, FILE_BYTES};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::object::{Fetched, Lease, Object};
use crate::remote::Remote;
use crate::settings::{Settings, StartError};

/// Threads that talk to the origin and never wait for the disk.
const THREADS: usize = 2;

/// Threads that wait for the disk.
const DISK_THREADS: usize = 8;

/// How many keys are looked up at once; others wait.
const LOOKS: usize = 64;

/// Callers that wait for look-ups. Without a limit, any number could wait for the same key, and each takes some KiB for
/// its task and its paths.
const CALLERS: usize = 16_384;

/// How often to try to lock the directory.
const CLAIM_EVERY: Duration = Duration::from_secs(2);

/// The result of a look-up that doesn't wait.
#[derive(Debug)]
pub enum Known {
    /// This object.
    Object(Arc<Object>),
    /// It isn't available.
    Failed(Error),
    /// The origin or the disk has to be asked.
    Unknown,
}

/// An origin and its cache. Handles are cheap; the threads end with the last one.
#[derive(Clone, Debug)]
pub struct Origin {
    inner: Arc<Inner>,
    _threads: Arc<Threads>,
}

/// The state its threads share.
#[derive(Debug)]
pub struct Inner {
    settings: Settings,
    /// The endpoint, the bucket and the prefix, from which the files' names are made.
    bucket: String,
    remote: Remote,
    directory: Directory,
    /// Whether this process owns the directory. Until it does, nothing in it is created or removed.
    alone: AtomicBool,
    /// Locked while names are taken and freed, so that each record belongs to the files that have its name.
    names: Mutex<()>,
    catalogue: Catalogue,
    metrics: Arc<Metrics>,
    looks: Mutex<HashMap<Arc<str>, Looking>>,
    look_permits: Arc<Semaphore>,
    /// A permit for each caller that waits for look-ups.
    callers: Arc<Semaphore>,
    /// A permit for each block in memory.
    blocks: Arc<Semaphore>,
    /// How many objects were evicted or replaced.
    evictions: AtomicU64,
    /// Limits how often each kind of failure is logged.
    full: LogLimit,
    looks_failed: LogLimit,
    fetches_failed: LogLimit,
    handle: Handle,
}

type Looking = watch::Receiver<Option<Result<Arc<Object>, Error>>>;

#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        // Running fetches end at any point, since only whole blocks are stored.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Origin {
    /// Opens the cache, finds what is in it, and starts its threads. The origin isn't asked.
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
            callers: Arc::new(Semaphore::new(CALLERS)),
            blocks: Arc::new(Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS))),
            evictions: AtomicU64::new(0),
            full: LogLimit::default(),
            looks_failed: LogLimit::default(),
            fetches_failed: LogLimit::default(),
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

    /// Runs a future on the origin's threads.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.inner.handle.spawn(future);
    }

    /// A place among those who wait for look-ups, until it is dropped; none if all are taken. Look-ups don't take one
    /// themselves, since a caller may need several.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.inner.callers).try_acquire_owned().ok()
    }

    /// What is known about a key, without waiting.
    pub fn known(&self, key: &str) -> Known {
        self.inner.known(key)
    }

    /// The object for a key. With `bytes`, its first block is fetched too if the origin has to be asked.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn find(&self, key: &str, bytes: bool) -> Result<Arc<Object>, Error> {
        Inner::find(&self.inner, key, bytes).await
    }

    /// Makes sure that the block where `wanted` starts is available, and starts fetching the blocks after it, as far as
    /// `wanted` goes.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn fetch(&self, object: &Arc<Object>, wanted: Range<u64>) -> Result<Fetched, Error> {
        Inner::fetch(&self.inner, object, wanted).await
    }

    /// How many objects were evicted or replaced. If this number changes, a caller that keeps objects open has to check
    /// which of them [are gone](Object::is_gone).
    pub fn evictions(&self) -> u64 {
        self.inner.evictions.load(Ordering::Relaxed)
    }

    /// The cache's bytes on the disk, and the number of objects.
    pub fn size(&self) -> (u64, usize) {
        self.inner.catalogue.size()
    }

    /// Adds its metrics.
    pub fn register(&self, registry: &mut Registry) {
        // The threads end with the last handle, so the metrics must not hold one.
        let inner = Arc::downgrade(&self.inner);
        let size = move || inner.upgrade().map_or((0, 0), |inner| inner.catalogue.size());
        self.inner.metrics.register(registry, size);
    }
}

impl Inner {
    /// A record's object; none if the record is no longer in the catalogue, or if another thread is opening the object
    /// and this one may not `wait`.
    pub(super) fn open(
        self: &Arc<Self>,
        record: &Arc<Record>,
        wait: bool,
    ) -> io::Result<Option<Arc<Object>>> {
        self.catalogue.open(record, wait, || {
            let (files, blocks) = self.directory.reopen(&record.name, &record.metadata, wait)?;
            let metadata = Arc::clone(&record.metadata);
            Ok(Object::new(metadata, files, blocks, Some(self.lease(record))))
        })
    }

    pub(super) async fn open_waiting(
        self: &Arc<Self>,
        record: &Arc<Record>,
    ) -> Result<Option<Arc<Object>>, Error> {
        let (this, of) = (Arc::clone(self), Arc::clone(record));
        let opened = self.handle.spawn_blocking(move || this.open(&of, true)).await;
        match opened.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())) {
            Ok(opened) => Ok(opened),
            Err(error) if is_short(&error) => Err(error.into()),
            Err(error) => {
                // Somebody has changed the directory. The object is fetched again.
                tracing::warn!(key = record.metadata.key, %error, "an object of the cache is fetched anew");
                self.drop_record(record).await;
                Ok(None)
            }
        }
    }

    /// Removes the files of a record that is no longer in the catalogue.
    pub(super) fn forget(&self, record: &Record) {
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

    pub(super) fn names(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn drop_now(&self, record: &Arc<Record>) {
        if self.catalogue.remove(record) {
            self.forget(record);
        }
    }

    pub(super) async fn drop_record(self: &Arc<Self>, record: &Arc<Record>) {
        let (this, of) = (Arc::clone(self), Arc::clone(record));
        let _ = self.handle.spawn_blocking(move || this.drop_now(&of)).await;
    }

    /// The place of a record's object in the catalogue.
    pub(super) fn lease(self: &Arc<Self>, record: &Arc<Record>) -> Box<dyn Lease> {
        Box::new(Leased { record: Arc::clone(record), origin: Arc::downgrade(self) })
    }

    pub(super) fn no_room(&self, error: &io::Error) {
        if let Some(times) = self.full.due() {
            tracing::warn!(%error, times, "the cache directory takes no more: objects are passed on as they come");
        }
    }

    /// Waits until the previous process has released the directory, and removes what that process left behind.
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

/// An object's place in the catalogue.
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

/// Whether the process, not the directory, lacks something.
fn is_short(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM))
}
