//! The threads that wait for the disk, so that no worker does.
//!
//! A connection, or a stream of one, has one job at a time, so that the queue is no longer than there are of these. What is
//! done is told by a call on the thread that did it.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, pread};
use service::panics;

use crate::site::Site;
use crate::site::root::{CodingLookup, Error, Found, LookupMode};
use crate::threads::health::{MonitoredThread, STUCK, ThreadHealth};
use crate::threads::queue::{JobSender, Jobs, queue};

/// Threads that wait for the disk. Disks take more at once, but read ahead by themselves.
const THREADS: usize = 4;

/// What is read at once to have it in memory.
const READ_BYTES: usize = 64 * 1024;

/// Files that wait to be read ahead; further ones are not.
const PREFETCHES: usize = 64;

/// Bodies that are read ahead for by threads at a time: these together have as much of the page cache as they may have, and
/// others what the kernel reads ahead of its own accord.
const READS_AHEAD: usize = 32;

/// How much of the next file of a manifest is read ahead.
const PREFETCH_BYTES: u64 = 32 << 20;

/// How much the kernel is asked to read at a time. It takes no more of one piece of advice than it would read ahead
/// of its own accord (mm/readahead.c, `force_page_cache_ra`), which is this much by default.
const ADVICE_BYTES: u64 = 128 << 10;

/// How long a lookup waits for a file descriptor: others are given back as transfers end.
const SCARCE_FOR: Duration = Duration::from_secs(10);

/// What is to be done, with a buffer of the thread's.
type Job = Box<dyn FnOnce(&mut [u8]) + Send>;

/// The threads, for all workers.
#[derive(Clone)]
pub struct DiskThreads {
    health: ThreadHealth,
    jobs: Arc<JobSender<Job>>,
    prefetches: Arc<AtomicUsize>,
    reads_ahead: Arc<AtomicUsize>,
    scarce: Arc<Scarce>,
}

/// What is done with a path and what it names.
type Then = Box<dyn FnOnce(Vec<u8>, Result<Found, Error>) + Send>;

/// A lookup.
struct Lookup {
    site: Arc<Site>,
    path: Vec<u8>,
    codings: CodingLookup,
    done: Then,
    /// When it fails, should there be no file descriptor until then.
    until: Instant,
}

/// What is known of times without file descriptors.
#[derive(Default)]
struct Scarce {
    /// Lookups that wait for some: each connection or stream has one at most.
    waiting: Mutex<Vec<Lookup>>,
    /// How often there were too few.
    times: AtomicU64,
}

impl fmt::Debug for DiskThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskThreads").finish_non_exhaustive()
    }
}

impl DiskThreads {
    /// Starts the threads; they end with the last handle.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start() -> std::io::Result<Self> {
        let health = ThreadHealth::new(THREADS);
        let (sender, jobs) = queue();
        for number in 0..THREADS {
            let jobs = jobs.clone();
            let thread = health.thread(number);
            std::thread::Builder::new()
                .name(format!("files-disk-{number}"))
                .spawn(move || work(&jobs, &thread))?;
        }
        let jobs = Arc::new(sender);
        let (prefetches, reads_ahead, scarce) = Default::default();
        Ok(Self { health, jobs, prefetches, reads_ahead, scarce })
    }

    /// Whether the threads go on, for the watchdog.
    pub fn is_alive(&self) -> bool {
        self.health.is_alive(STUCK)
    }

    /// Finds out what a path names. Where there is no file descriptor for that, it waits a while for one.
    pub fn find(
        &self,
        site: Arc<Site>,
        (path, codings): (Vec<u8>, CodingLookup),
        done: impl FnOnce(Vec<u8>, Result<Found, Error>) + Send + 'static,
    ) {
        let until = Instant::now() + SCARCE_FOR;
        self.look(Lookup { site, path, codings, done: Box::new(done), until });
    }

    fn look(&self, lookup: Lookup) {
        // What waits there keeps no thread from ending.
        let scarce = Arc::downgrade(&self.scarce);
        self.run(move |_| {
            let find = || {
                #[cfg(test)]
                crate::faults::strike(crate::faults::LOOKUP, &lookup.path);
                lookup.site.root.find(&lookup.path, LookupMode::MayBlock, lookup.codings)
            };
            let found = panics::catch(find).unwrap_or_else(|panic| {
                panic.log("lookup", &String::from_utf8_lossy(&lookup.path));
                Err(Error::Failed(Errno::IO))
            });
            match (found, scarce.upgrade()) {
                (Err(Error::Exhausted), Some(scarce)) if Instant::now() < lookup.until => {
                    scarce.waiting().push(lookup);
                    scarce.times.fetch_add(1, Ordering::Relaxed);
                }
                (found, _) => (lookup.done)(lookup.path, found),
            }
        });
    }

    /// There are too few file descriptors: each thread lets go of those it keeps.
    pub fn is_short(&self) {
        self.scarce.times.fetch_add(1, Ordering::Relaxed);
    }

    /// How often there were too few file descriptors.
    pub fn shortages(&self) -> u64 {
        self.scarce.times.load(Ordering::Relaxed)
    }

    /// Has those looked up again that wait for a file descriptor.
    pub fn look_again(&self) {
        let waiting = std::mem::take(&mut *self.scarce.waiting());
        waiting.into_iter().for_each(|lookup| self.look(lookup));
    }

    /// Reads a part of a file, so that it is in memory.
    pub fn warm(&self, fd: Arc<OwnedFd>, range: Range<u64>, done: impl FnOnce() + Send + 'static) {
        self.run(move |buffer| {
            // Whatever comes of it, the worker has another look.
            if let Err(panic) = panics::catch(|| warm(&fd, range, buffer)) {
                panic.log("job", "reading a file");
            }
            done();
        });
    }

    /// Reads the beginning of a file that will be wanted soon. Returns whether it will.
    pub fn prefetch(&self, site: Arc<Site>, path: Vec<u8>) -> bool {
        let Some(waiting) = OneOf::these(&self.prefetches, PREFETCHES) else { return false };
        self.run(move |_| {
            drop(waiting);
            if let Ok(file) = site.root.regular(&path, LookupMode::MayBlock) {
                // This only asks the kernel to read, and does not wait for it.
                read_ahead(&file.fd, 0..file.identity.size.min(PREFETCH_BYTES));
            }
        });
        true
    }

    /// The right to have a file read ahead, until it is dropped; none where as many have it as may.
    pub fn may_read_ahead(&self) -> Option<OneOf> {
        OneOf::these(&self.reads_ahead, READS_AHEAD)
    }

    /// Does what may take as long as the disk does.
    pub fn run(&self, job: impl FnOnce(&mut [u8]) + Send + 'static) {
        // Its length is bounded by those who wait for what is done.
        let _ = self.jobs.send(Box::new(job), usize::MAX);
    }
}

impl Scarce {
    fn waiting(&self) -> MutexGuard<'_, Vec<Lookup>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of those there may be so many of.
#[derive(Debug)]
pub struct OneOf(Arc<AtomicUsize>);

impl OneOf {
    fn these(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |count| (count < most).then_some(count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for OneOf {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn work(jobs: &Jobs<Job>, thread: &MonitoredThread) {
    let mut buffer = vec![0; READ_BYTES];
    while let Some(job) = jobs.next() {
        thread.at(|| job(&mut buffer));
    }
}

/// Has the kernel begin to read, as far as it takes that advice.
pub fn read_ahead(fd: &OwnedFd, range: Range<u64>) {
    for start in range.clone().step_by(ADVICE_BYTES as usize) {
        let length = ADVICE_BYTES.min(range.end - start);
        let _ = fadvise(fd, start, NonZero::new(length), Advice::WillNeed);
    }
}

/// Reads `range`, and has the kernel begin with as much behind it.
fn warm(fd: &OwnedFd, range: Range<u64>, buffer: &mut [u8]) {
    let length = range.end - range.start;
    read_ahead(fd, range.start..range.end + length);
    let mut at = range.start;
    while at < range.end {
        let wanted = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
        match pread(fd, &mut buffer[..wanted], at) {
            // What the file does not have the worker will find out.
            Ok(0) | Err(_) => return,
            Ok(read) => at += read as u64,
        }
    }
}
