//! The threads that wait for the disk, so that no worker does.
//!
//! A connection, or a stream of one, has one job at a time, so that the queue is no longer than there are of
//! these. What is done is told by a call on the thread that did it; a plain worker has it put into its mailbox,
//! whose bell wakes the worker's loop.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use listener::Offloaded;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, pread, read, write};

use crate::listing;
use crate::site::Site;
use crate::site::root::{Error, Found, Patience};

/// Threads that wait for the disk. Disks take more at once, but read ahead by themselves.
const THREADS: usize = 4;

/// Listings that are written at once: each has a thread and some megabytes.
const LISTINGS: usize = 4;

/// Blocks of a listing that wait for the client.
pub const BLOCKS: usize = 2;

/// What is read at once to have it in memory.
const READ_BYTES: usize = 64 * 1024;

/// Files that wait to be read ahead; further ones are not.
const PREFETCHES: usize = 64;

/// How much of the next file of a manifest is read ahead.
const PREFETCH_BYTES: u64 = 32 << 20;

/// How much the kernel is asked to read at a time. It takes no more of one piece of advice than it would read ahead
/// of its own accord (mm/readahead.c, `force_page_cache_ra`), which is this much by default.
const ADVICE_BYTES: u64 = 128 << 10;

/// Whom a job is for: a connection of a worker.
pub type Token = u64;

/// What is done.
#[derive(Debug)]
pub enum Done {
    /// What a path names.
    Found(Vec<u8>, Result<Found, Error>),
    /// What was cold is in memory, as far as the file has it.
    Warm,
    /// There is another block of a listing.
    Block,
}

/// A block of a listing.
#[derive(Debug)]
pub enum Block {
    /// Some of it.
    Some(Vec<u8>),
    /// All of it was given.
    End,
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

/// The threads, for all workers.
#[derive(Clone)]
pub struct Disk {
    jobs: Sender<Job>,
    prefetches: Arc<AtomicUsize>,
    listings: Arc<AtomicUsize>,
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
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..THREADS {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("files-disk-{number}")).spawn(move || work(&queue))?;
        }
        Ok(Self { jobs, prefetches: Arc::default(), listings: Arc::default() })
    }

    /// Finds out what a path names.
    pub fn find(
        &self,
        site: Arc<Site>,
        path: Vec<u8>,
        done: impl FnOnce(Vec<u8>, Result<Found, Error>) + Send + 'static,
    ) {
        self.run(move |_| {
            let found = site.root.find(&path, Patience::Disk);
            done(path, found);
        });
    }

    /// Reads a part of a file, so that it is in memory.
    pub fn warm(&self, fd: Arc<OwnedFd>, range: Range<u64>, done: impl FnOnce() + Send + 'static) {
        self.run(move |buffer| {
            warm(&fd, range, buffer);
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

    /// Writes a listing, on a thread of its own: each block to `give`, which says whether to go on. None comes
    /// after [`Block::End`]; a listing without it ended early. Returns false where too many are being written.
    pub fn list(
        &self,
        site: Arc<Site>,
        request: listing::Request,
        give: impl FnMut(Block) -> bool + Send + 'static,
    ) -> bool {
        let Some(running) = OneOf::these(&self.listings, LISTINGS) else { return false };
        let thread = std::thread::Builder::new().name("files-listing".into());
        let started = thread.spawn(move || {
            list(&site, &request, give);
            drop(running);
        });
        started.is_ok()
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

fn list(site: &Site, request: &listing::Request, mut give: impl FnMut(Block) -> bool) {
    let written =
        site.root.directory(&request.path, Patience::Disk).map_err(|error| error.to_string()).and_then(
            |directory| {
                listing::write(request, directory, |block| give(Block::Some(block)))
                    .map_err(|error| error.to_string())
            },
        );
    match written {
        Ok(()) => {
            give(Block::End);
        }
        Err(error) => {
            tracing::debug!(path = %String::from_utf8_lossy(&request.path), error, "a listing ended early")
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        job(&mut buffer);
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
