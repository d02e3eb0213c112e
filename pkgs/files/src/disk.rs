//! The threads that wait for the disk, so that no worker does. Those of [`listing_pool`](crate::listing_pool) write
//! listings.
//!
//! A connection, or a stream of one, has one job at a time, so that the queue is no longer than there are of
//! these. What is done is told by a call on the thread that did it; a plain worker has it put into its mailbox,
//! whose bell wakes the worker's loop.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use listener::Offloaded;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, pread, read, write};
use service::panics;

use crate::listing;
use crate::listing_pool::{Block, Listing, Pool};
use crate::ring::Ring;
use crate::site::Site;
use crate::site::root::{Error, Found, Patience};
use crate::wait::Waited;

/// Threads that wait for the disk. Disks take more at once, but read ahead by themselves.
const THREADS: usize = 4;

/// What is read at once to have it in memory.
const READ_BYTES: usize = 64 * 1024;

/// Files that wait to be read ahead; further ones are not.
const PREFETCHES: usize = 64;

/// How much of the next file of a manifest is read ahead.
const PREFETCH_BYTES: u64 = 32 << 20;

/// How much the kernel is asked to read at a time. It takes no more of one piece of advice than it would read ahead
/// of its own accord (mm/readahead.c, `force_page_cache_ra`), which is this much by default.
const ADVICE_BYTES: u64 = 128 << 10;

/// How long a lookup waits for a file descriptor: others are given back as transfers end.
const SCARCE_FOR: Duration = Duration::from_secs(10);

/// What reads files that are not in memory, for the plain listener. What the process encrypts is read by threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reader {
    /// io_uring where the kernel allows it, else threads, with a warning at start.
    Auto,
    /// io_uring(7), or no start: each worker has one, and reads around the page cache what is not asked for again.
    Uring,
    /// Four threads, into the page cache.
    Threads,
}

impl Reader {
    /// Whether rings of so many bytes are to read, and if not why the kernel has none, where that was asked for.
    ///
    /// # Errors
    /// Why the kernel has none, where there has to be one.
    pub fn ring(self, memory: usize) -> std::io::Result<(Option<usize>, Option<std::io::Error>)> {
        match (self, self.is_by_ring().then(|| Ring::new(memory))) {
            (_, None) => Ok((None, None)),
            (_, Some(Ok(_))) => Ok((Some(memory), None)),
            (Self::Uring, Some(Err(error))) => Err(error),
            (_, Some(Err(error))) => Ok((None, Some(error))),
        }
    }

    fn is_by_ring(self) -> bool {
        self != Self::Threads
    }
}

/// Whom a job is for: a connection of a worker.
pub type Token = u64;

/// What is done.
#[derive(Debug)]
pub enum Done {
    /// What an answer waited for.
    Waited(Waited),
    /// What was cold is in memory, as far as the file has it.
    Warm,
    /// The next block of a listing.
    Block(Block),
}

/// What is to be done, with a buffer of the thread's.
type Job = Box<dyn FnOnce(&mut [u8]) + Send>;

/// Where a worker finds what is done for it.
#[derive(Debug)]
pub struct Mailbox {
    letters: Mutex<Letters>,
    bell: OwnedFd,
}

/// What is in a mailbox.
#[derive(Debug, Default)]
pub struct Letters {
    /// What is done, and for whom.
    pub done: Vec<(Token, Done)>,
    /// Connections that come from the TLS listener.
    pub arrived: Vec<Offloaded>,
}

impl Mailbox {
    /// An empty one.
    ///
    /// # Errors
    /// When there is no file descriptor for its bell.
    pub fn new() -> Result<Self, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { letters: Mutex::default(), bell })
    }

    /// What wakes the worker.
    pub fn bell(&self) -> impl AsFd {
        &self.bell
    }

    /// Rings, with or without a letter.
    pub fn ring(&self) {
        // It can only fail where it has rung for ever and nobody listens.
        let _ = write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Takes what is there.
    pub fn take(&self) -> Letters {
        let _ = read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut *self.letters())
    }

    /// Whether nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.letters().arrived.is_empty()
    }

    /// Puts a letter in, and rings.
    pub fn put(&self, token: Token, done: Done) {
        self.letters().done.push((token, done));
        self.ring();
    }

    /// Puts a connection in, and rings.
    pub fn arrive(&self, connection: Offloaded) {
        self.letters().arrived.push(connection);
        self.ring();
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a job of a thread here may take before the thread counts as stuck: a disk may be slow, or far away.
pub const STUCK: Duration = Duration::from_secs(60);

/// Since when threads have been at their jobs, for the watchdog.
#[derive(Clone, Debug)]
pub struct Busy {
    /// By thread, in milliseconds since the start; 0 where it waits for a job, and [`ENDED`] where it has ended.
    since: Arc<[AtomicU64]>,
    start: Instant,
}

/// What a thread that has ended is at.
const ENDED: u64 = u64::MAX;

/// A thread that shows since when it has been at its job; until it is dropped, which is to be at the end.
#[derive(Debug)]
pub struct BusyThread {
    busy: Busy,
    number: usize,
}

impl Busy {
    /// Of so many threads, which wait for jobs.
    pub fn new(threads: usize) -> Self {
        Self { since: (0..threads).map(|_| AtomicU64::new(0)).collect(), start: Instant::now() }
    }

    /// For one of the threads.
    pub fn thread(&self, number: usize) -> BusyThread {
        BusyThread { busy: self.clone(), number }
    }

    /// Whether no thread has ended, or been at its job for longer than `stuck`.
    pub fn is_alive(&self, stuck: Duration) -> bool {
        let now = self.now();
        self.since.iter().all(|since| match since.load(Ordering::Relaxed) {
            0 => true,
            ENDED => false,
            since => Duration::from_millis(now.saturating_sub(since)) <= stuck,
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(ENDED - 1).max(1)
    }
}

impl BusyThread {
    /// Does a job, and logs its panic.
    pub fn at(&self, job: impl FnOnce()) {
        let since = &self.busy.since[self.number];
        since.store(self.busy.now(), Ordering::Relaxed);
        if let Err(panic) = panics::catch(job) {
            panic.log("job", "of a thread that waits for the disk");
        }
        since.store(0, Ordering::Relaxed);
    }
}

impl Drop for BusyThread {
    fn drop(&mut self) {
        self.busy.since[self.number].store(ENDED, Ordering::Relaxed);
    }
}

/// The threads, for all workers.
#[derive(Clone)]
pub struct Disk {
    busy: Busy,
    jobs: Sender<Job>,
    prefetches: Arc<AtomicUsize>,
    listings: Arc<Pool>,
    scarce: Arc<Scarce>,
}

/// What is done with a path and what it names.
type Then = Box<dyn FnOnce(Vec<u8>, Result<Found, Error>) + Send>;

/// A lookup.
struct Lookup {
    site: Arc<Site>,
    path: Vec<u8>,
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

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl Disk {
    /// Starts the threads; they end with the last handle.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start() -> std::io::Result<Self> {
        let busy = Busy::new(THREADS);
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..THREADS {
            let queue = Arc::clone(&queue);
            let thread = busy.thread(number);
            std::thread::Builder::new()
                .name(format!("files-disk-{number}"))
                .spawn(move || work(&queue, &thread))?;
        }
        Ok(Self {
            busy,
            jobs,
            prefetches: Arc::default(),
            listings: Arc::new(Pool::start()?),
            scarce: Arc::default(),
        })
    }

    /// Whether the threads go on, for the watchdog.
    pub fn is_alive(&self) -> bool {
        self.busy.is_alive(STUCK) && self.listings.busy().is_alive(STUCK)
    }

    /// Finds out what a path names. Where there is no file descriptor for that, it waits a while for one.
    pub fn find(
        &self,
        site: Arc<Site>,
        path: Vec<u8>,
        done: impl FnOnce(Vec<u8>, Result<Found, Error>) + Send + 'static,
    ) {
        self.look(Lookup { site, path, done: Box::new(done), until: Instant::now() + SCARCE_FOR });
    }

    fn look(&self, lookup: Lookup) {
        // What waits there keeps no thread from ending.
        let scarce = Arc::downgrade(&self.scarce);
        self.run(move |_| {
            let find = || {
                #[cfg(test)]
                crate::faults::strike(crate::faults::LOOKUP, &lookup.path);
                lookup.site.root.find(&lookup.path, Patience::Disk)
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
            if let Ok(file) = site.root.regular(&path, Patience::Disk) {
                // This only asks the kernel to read, and does not wait for it.
                let end = file.identity.size.min(PREFETCH_BYTES);
                for start in (0..end).step_by(ADVICE_BYTES as usize) {
                    let _ = fadvise(&file.fd, start, NonZero::new(ADVICE_BYTES), Advice::WillNeed);
                }
            }
        });
        true
    }

    /// Does what may take as long as the disk does.
    pub fn run(&self, job: impl FnOnce(&mut [u8]) + Send + 'static) {
        // The threads end after the last handle, of which this is one.
        let _ = self.jobs.send(Box::new(job));
    }

    /// Begins a listing. None where there are too many.
    pub fn list(&self, site: Arc<Site>, request: listing::Request) -> Option<Listing> {
        self.listings.open(site, request)
    }
}

impl Scarce {
    fn waiting(&self) -> MutexGuard<'_, Vec<Lookup>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of those there may be so many of.
struct OneOf(Arc<AtomicUsize>);

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

fn work(queue: &Mutex<Receiver<Job>>, thread: &BusyThread) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        thread.at(|| job(&mut buffer));
    }
}

/// Reads `range`, and has the kernel begin with as much behind it.
fn warm(fd: &OwnedFd, range: Range<u64>, buffer: &mut [u8]) {
    let length = range.end - range.start;
    let _ = fadvise(fd, range.start, NonZero::new(2 * length), Advice::WillNeed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_stuck_or_has_ended_is_seen() {
        let busy = Busy::new(2);
        let (first, second) = (busy.thread(0), busy.thread(1));
        assert!(busy.is_alive(Duration::ZERO));
        first.at(|| {
            assert!(busy.is_alive(STUCK));
            while busy.is_alive(Duration::ZERO) {
                std::thread::yield_now();
            }
        });
        first.at(|| panic!("on purpose"));
        assert!(busy.is_alive(Duration::ZERO), "a job that is over");
        drop(second);
        assert!(!busy.is_alive(STUCK));
    }
}
