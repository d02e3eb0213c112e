//! The threads that wait for the disk, so that no worker does.
//!
//! A connection or stream has one job at a time, which limits the queue. Results are reported by a call on the thread
//! that did the work.

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
use crate::site::lookup::Lookup;
use crate::site::root::{Error, Found, LookupMode};
use crate::threads::background;
use crate::threads::health::{MonitoredThread, STUCK, ThreadHealth};
use crate::threads::queue::{JobSender, Jobs, queue};

/// Threads that wait for the disk. Disks could do more at once, but the kernel reads ahead by itself.
const THREADS: usize = 4;

/// How much is read at once to have it in memory.
const READ_BYTES: usize = 64 * 1024;

/// Files that may wait to be read ahead. Further ones are not read ahead.
const PREFETCHES: usize = 64;

/// How many bodies threads read ahead for at a time: together these may fill their part of the page cache. For others,
/// the kernel's own read-ahead has to do.
const READS_AHEAD: usize = 32;

/// How much of a manifest's next file is read ahead.
const PREFETCH_BYTES: u64 = 32 << 20;

/// How much the kernel is asked to read ahead at a time. It accepts no more per call than its own read-ahead
/// (mm/readahead.c, `force_page_cache_ra`), by default this much.
const ADVICE_BYTES: u64 = 128 << 10;

/// How long a lookup waits for a file descriptor; others are freed as transfers end.
const SCARCE_FOR: Duration = Duration::from_secs(10);

/// A job, with a buffer of the thread.
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

/// What to do with a path and what it names.
type Then = Box<dyn FnOnce(Vec<u8>, Result<Found, Error>) + Send>;

/// A lookup that a thread does, now or again later.
struct DiskLookup {
    site: Arc<Site>,
    lookup: Lookup,
    done: Then,
    /// When it fails, if there is no file descriptor until then.
    until: Instant,
}

/// The state of a shortage of file descriptors.
#[derive(Default)]
struct Scarce {
    /// Lookups that wait for one; each connection or stream has at most one.
    waiting: Mutex<Vec<DiskLookup>>,
    /// How often there were too few.
    times: AtomicU64,
}

impl fmt::Debug for DiskThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskThreads").finish_non_exhaustive()
    }
}

impl DiskThreads {
    /// Starts the threads. They end with the last handle.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start() -> std::io::Result<Self> {
        let health = ThreadHealth::new(THREADS);
        let (sender, jobs) = queue();
        for number in 0..THREADS {
            let jobs = jobs.clone();
            let thread = health.thread(number);
            background::spawn(format!("files-disk-{number}"), move || work(&jobs, &thread))?;
        }
        let jobs = Arc::new(sender);
        let (prefetches, reads_ahead, scarce) = Default::default();
        Ok(Self { health, jobs, prefetches, reads_ahead, scarce })
    }

    /// Whether the threads are alive, for the watchdog.
    pub fn is_alive(&self) -> bool {
        self.health.is_alive(STUCK)
    }

    /// Finds out what a path names, or the first of several. Waits a while if there is no file descriptor.
    pub fn find(
        &self,
        site: Arc<Site>,
        lookup: Lookup,
        done: impl FnOnce(Vec<u8>, Result<Found, Error>) + Send + 'static,
    ) {
        let until = Instant::now() + SCARCE_FOR;
        self.look(DiskLookup { site, lookup, done: Box::new(done), until });
    }

    fn look(&self, this: DiskLookup) {
        // A waiting lookup does not keep threads from ending.
        let scarce = Arc::downgrade(&self.scarce);
        self.run(move |_| {
            let find = || {
                #[cfg(test)]
                crate::faults::strike(crate::faults::LOOKUP, this.lookup.asked());
                this.lookup.find(&this.site, LookupMode::MayBlock)
            };
            let (path, found) = panics::catch(find).unwrap_or_else(|panic| {
                let asked = this.lookup.asked();
                panic.log("lookup", &String::from_utf8_lossy(asked));
                (asked.to_vec(), Err(Error::Failed(Errno::IO)))
            });
            match (found, scarce.upgrade()) {
                (Err(Error::Exhausted), Some(scarce)) if Instant::now() < this.until => {
                    scarce.waiting().push(this);
                    scarce.times.fetch_add(1, Ordering::Relaxed);
                }
                (found, _) => (this.done)(path, found),
            }
        });
    }

    /// Reports a shortage of file descriptors: each thread then closes those that it keeps.
    pub fn is_short(&self) {
        self.scarce.times.fetch_add(1, Ordering::Relaxed);
    }

    /// How often there were too few file descriptors.
    pub fn shortages(&self) -> u64 {
        self.scarce.times.load(Ordering::Relaxed)
    }

    /// Retries the lookups that wait for a file descriptor.
    pub fn look_again(&self) {
        let waiting = std::mem::take(&mut *self.scarce.waiting());
        waiting.into_iter().for_each(|this| self.look(this));
    }

    /// Reads a part of a file, so that it is in memory.
    pub fn warm(&self, fd: Arc<OwnedFd>, range: Range<u64>, done: impl FnOnce() + Send + 'static) {
        self.run(move |buffer| {
            // Whatever the result, the worker checks again.
            if let Err(panic) = panics::catch(|| warm(&fd, range, buffer)) {
                panic.log("job", "reading a file");
            }
            done();
        });
    }

    /// Reads the start of a file that will be requested soon. Returns whether it will.
    pub fn prefetch(&self, site: Arc<Site>, path: Vec<u8>) -> bool {
        let Some(waiting) = OneOf::these(&self.prefetches, PREFETCHES) else { return false };
        self.run(move |_| {
            drop(waiting);
            if let Ok(file) = site.root.regular(&path, LookupMode::MayBlock) {
                // This only asks the kernel to read, and does not wait.
                read_ahead(&file.fd, 0..file.identity.size.min(PREFETCH_BYTES));
            }
        });
        true
    }

    /// Permission to have a file read ahead, until it is dropped; none if all are taken.
    pub fn may_read_ahead(&self) -> Option<OneOf> {
        OneOf::these(&self.reads_ahead, READS_AHEAD)
    }

    /// Runs a job that may take as long as the disk does.
    pub fn run(&self, job: impl FnOnce(&mut [u8]) + Send + 'static) {
        // The queue needs no limit: each connection or stream has at most one job in it.
        let _ = self.jobs.send(Box::new(job), usize::MAX);
    }
}

impl Scarce {
    fn waiting(&self) -> MutexGuard<'_, Vec<DiskLookup>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of a limited number.
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

/// Asks the kernel to read ahead, as far as it accepts that.
pub fn read_ahead(fd: &OwnedFd, range: Range<u64>) {
    for start in range.clone().step_by(ADVICE_BYTES as usize) {
        let length = ADVICE_BYTES.min(range.end - start);
        let _ = fadvise(fd, start, NonZero::new(length), Advice::WillNeed);
    }
}

/// Reads `range`, and asks the kernel to start on as much after it.
fn warm(fd: &OwnedFd, range: Range<u64>, buffer: &mut [u8]) {
    let length = range.end - range.start;
    read_ahead(fd, range.start..range.end + length);
    let mut at = range.start;
    while at < range.end {
        let wanted = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
        match pread(fd, &mut buffer[..wanted], at) {
            // The worker notices if the file is shorter.
            Ok(0) | Err(_) => return,
            Ok(read) => at += read as u64,
        }
    }
}
