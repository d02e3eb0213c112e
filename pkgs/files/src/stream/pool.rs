//! The threads that write streams: listings and archives. A job is one block. Between two blocks, a stream waits for
//! its client and occupies no thread.
//!
//! The names of large directories share [`NAME_MEMORY_BYTES`]. A listing without a share waits for one. A listing whose
//! client has taken nothing for [`RESTED`] loses its names, and reads them again when its client continues.
//!
//! A listing stays on the thread where it started, as long as that is otherwise idle. Each thread's allocator keeps
//! memory that it once had, so the names of a listing that moves would take the memory of several threads.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use service::panics;

use super::source::{BlockSource, Error, MAX_NAME_BYTES, NameMemory, Step};
use crate::threads::background;
use crate::threads::health::{MonitoredThread, ThreadHealth};

/// Threads that write listings; small ones wait for one that isn't busy with a large one.
const THREADS: usize = 4;

/// Memory for the names of large directories: all threads but one can have such a directory at a time.
const NAME_MEMORY_BYTES: usize = (THREADS - 1) * MAX_NAME_BYTES;

/// The most streams at once. While its client takes nothing, one holds a block and the names of a small directory,
/// about 48 KiB.
const STREAMS: usize = 1024;

/// How long a listing has to wait for its client before it may lose its names; a client that takes ten megabits per
/// second continues earlier.
const RESTED: Duration = Duration::from_millis(20);

/// How often listings that wait for memory check for it.
const RETRY: Duration = Duration::from_millis(10);

/// A block, or none after the last.
pub type Block = Result<Option<Vec<u8>>, Error>;

/// The threads; they end when this is dropped.
pub struct StreamPool(Arc<Shared>, ThreadHealth);

/// A listing being written; it ends when this is dropped.
pub struct BlockStream {
    paced: Arc<Paced>,
    home: Arc<AtomicUsize>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// One per thread.
    wakeups: [Condvar; THREADS],
    /// How much of [`NAME_MEMORY_BYTES`] is taken.
    taken: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    due: VecDeque<Job>,
    /// Jobs that wait for memory.
    parked: VecDeque<Job>,
    /// When they check for it again.
    retry: Option<Instant>,
    streams: Vec<Weak<Paced>>,
    /// Threads that wait for a job; the last to start waiting is at the end, and is woken first.
    idle: Vec<usize>,
    /// Threads that are about to look for a job, and needn't be woken.
    finishing: [bool; THREADS],
    ended: bool,
}

struct Job {
    /// Gone if the client is.
    paced: Weak<Paced>,
    /// The number of the thread that wrote the listing's last block; none at first.
    home: Arc<AtomicUsize>,
    done: Box<dyn FnOnce(Block) + Send>,
}

type Paced = Mutex<Held>;

/// A listing with its share of the memory.
struct Held {
    source: Box<dyn BlockSource>,
    share: Share,
    /// When it gave its last block.
    since: Instant,
}

/// The memory that a listing's names take, in bytes; nothing for a small directory.
struct Share {
    bytes: usize,
    shared: Arc<Shared>,
}

impl fmt::Debug for StreamPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamPool").finish_non_exhaustive()
    }
}

impl fmt::Debug for BlockStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockStream").finish_non_exhaustive()
    }
}

impl StreamPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system can't start any more.
    pub fn start() -> std::io::Result<Self> {
        let pool = Self(Arc::default(), ThreadHealth::new(THREADS));
        for number in 0..THREADS {
            let (shared, thread) = (Arc::clone(&pool.0), pool.1.thread(number));
            background::spawn(format!("files-list-{number}"), move || shared.work(number, &thread))?;
        }
        Ok(pool)
    }

    /// How long its threads have been at their jobs.
    pub fn health(&self) -> &ThreadHealth {
        &self.1
    }

    /// Begins a stream; none if there are too many.
    pub fn open(&self, source: Box<dyn BlockSource>) -> Option<BlockStream> {
        let shared = Arc::clone(&self.0);
        let mut queue = self.0.queue();
        if queue.streams.len() >= STREAMS {
            queue.streams.retain(|stream| stream.strong_count() > 0);
        }
        if queue.streams.len() >= STREAMS {
            return None;
        }
        let share = Share { bytes: 0, shared: Arc::clone(&shared) };
        let paced = Arc::new(Mutex::new(Held { source, share, since: Instant::now() }));
        queue.streams.push(Arc::downgrade(&paced));
        drop(queue);
        Some(BlockStream { paced, home: Arc::new(AtomicUsize::new(THREADS)), shared })
    }
}

impl Drop for StreamPool {
    fn drop(&mut self) {
        self.0.queue().ended = true;
        self.0.wakeups.iter().for_each(Condvar::notify_all);
    }
}

impl BlockStream {
    /// Requests the next block; `done` is given it, unless the listing is dropped first.
    pub fn next(&self, done: impl FnOnce(Block) + Send + 'static) {
        let home = self.home.load(Ordering::Relaxed);
        let job =
            Job { paced: Arc::downgrade(&self.paced), home: Arc::clone(&self.home), done: Box::new(done) };
        let mut queue = self.shared.queue();
        queue.due.push_back(job);
        // A thread that is about to look will find this job, or wake another for it.
        if !queue.is_finishing(home) {
            self.shared.wake(&mut queue, home);
        }
    }
}

impl Share {
    /// Gives back everything but `bytes`.
    fn shrink(&mut self, bytes: usize) {
        let freed = self.bytes.saturating_sub(bytes);
        self.bytes -= freed;
        self.shared.taken.fetch_sub(freed, Ordering::Relaxed);
    }
}

impl NameMemory for Share {
    fn grow(&mut self) -> Option<usize> {
        self.shrink(0);
        self.bytes = if self.shared.grow() { MAX_NAME_BYTES } else { 0 };
        (self.bytes > 0).then_some(self.bytes)
    }

    fn fits(&mut self, bytes: usize) {
        self.shrink(bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

impl Queue {
    /// Whether the thread with this number is about to look for a job.
    fn is_finishing(&self, number: usize) -> bool {
        self.finishing.get(number).is_some_and(|finishing| *finishing)
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, number: usize, thread: &MonitoredThread) {
        while let Some(job) = self.take(number) {
            thread.at(|| self.run(job, number));
        }
    }

    /// Wakes a thread that waits for a job, preferably the one with this number.
    fn wake(&self, queue: &mut Queue, home: usize) {
        let at = queue.idle.iter().position(|idle| *idle == home).or(queue.idle.len().checked_sub(1));
        if let Some(at) = at {
            self.wakeups[queue.idle.remove(at)].notify_one();
        }
    }

    /// The next job for the thread with this number; none at the end.
    fn take(&self, number: usize) -> Option<Job> {
        let mut queue = self.queue();
        queue.finishing[number] = false;
        loop {
            if queue.ended {
                return None;
            }
            let left = queue.retry.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                // As many as there may be room for, first come first served.
                let most = queue.parked.len().min(THREADS);
                let Queue { due, parked, retry, .. } = &mut *queue;
                due.extend(parked.drain(..most));
                *retry = (!parked.is_empty()).then(|| Instant::now() + RETRY);
            }
            // Skips jobs that another thread is about to look for.
            let is_free = |job: &Job| !queue.is_finishing(job.home.load(Ordering::Relaxed));
            let first = queue.due.iter().position(is_free);
            if let Some(job) = first.and_then(|first| queue.due.remove(first)) {
                if let Some(next) = queue.due.front() {
                    let home = next.home.load(Ordering::Relaxed);
                    self.wake(&mut queue, home);
                }
                return Some(job);
            }
            queue.idle.push(number);
            let wakeup = &self.wakeups[number];
            queue = match left {
                Some(left) => wakeup.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0,
                None => wakeup.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
            queue.idle.retain(|idle| *idle != number);
        }
    }

    /// Writes a block on the thread with this number.
    fn run(&self, job: Job, number: usize) {
        let Some(paced) = job.paced.upgrade() else { return };
        let mut held = paced.lock().unwrap_or_else(PoisonError::into_inner);
        let Held { source, share, since } = &mut *held;
        let block = match panics::catch(|| source.step(share)) {
            Ok(Ok(Step::Block(block))) => Ok(Some(block)),
            Ok(Ok(Step::End)) => Ok(None),
            Ok(Ok(Step::Again)) => {
                drop(held);
                job.home.store(number, Ordering::Relaxed);
                // The job goes to the end of the queue. This thread then looks for the first one.
                return self.queue().due.push_back(job);
            }
            Ok(Ok(Step::Wait)) => {
                drop(held);
                let mut queue = self.queue();
                queue.parked.push_back(job);
                queue.retry.get_or_insert_with(|| Instant::now() + RETRY);
                // A sleeping thread has to check the time from now on.
                return self.wake(&mut queue, THREADS);
            }
            Ok(Err(error)) => Err(error),
            Err(panic) => {
                panic.log("stream", &String::from_utf8_lossy(source.path()));
                Err(Error::Panicked)
            }
        };
        if let Err(error) = &block {
            let path = String::from_utf8_lossy(source.path());
            tracing::debug!(%path, %error, "a stream ended early");
        }
        *since = Instant::now();
        drop(held);
        job.home.store(number, Ordering::Relaxed);
        self.queue().finishing[number] = true;
        (job.done)(block);
    }

    /// Takes memory for the names of a large directory, if necessary from a listing that hasn't used its own for a
    /// while.
    fn grow(&self) -> bool {
        loop {
            let take =
                |taken| (taken + MAX_NAME_BYTES <= NAME_MEMORY_BYTES).then_some(taken + MAX_NAME_BYTES);
            if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                return true;
            }
            if !self.reclaim() {
                return false;
            }
        }
    }

    /// Takes the names from the listing that has rested longest. Returns whether there was one.
    fn reclaim(&self) -> bool {
        let all: Vec<Arc<Paced>> = self.queue().streams.iter().filter_map(Weak::upgrade).collect();
        let rested = all.iter().filter_map(|paced| match paced.try_lock() {
            Ok(held) => {
                (held.share.bytes > 0 && held.since.elapsed() >= RESTED).then_some((held.since, paced))
            }
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => None,
        });
        let Some((_, paced)) = rested.min_by_key(|(since, _)| *since) else { return false };
        let Ok(mut held) = paced.try_lock() else { return false };
        held.source.release_memory();
        held.share.shrink(0);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::http::listing_query::ListingQuery;
    use crate::listing::request::ListingRequest;
    use crate::listing::writer::ListingWriter;
    use crate::listing::writer::tests::{place_of, site};
    use crate::site::Site;

    /// The next block, waiting for it.
    fn next(listing: &BlockStream) -> Block {
        let (give, block) = mpsc::channel();
        listing.next(move |block| give.send(block).expect("it is waited for"));
        block.recv().expect("a block")
    }

    fn request() -> ListingRequest {
        let order = ListingQuery { json: Some(true), ..ListingQuery::default() };
        ListingRequest { path: Vec::new(), order, json: true, hidden: false, chunked: false }
    }

    fn listing(site: &Arc<Site>, request: ListingRequest) -> Box<dyn BlockSource> {
        Box::new(ListingWriter::new(Arc::clone(site), request))
    }

    #[test]
    fn listings_that_rest_keep_no_other_waiting() {
        // These are more names than a small directory has.
        let names: Vec<String> = (0..2000).map(|n| format!("{n:04}")).collect();
        let place = place_of(names.iter().map(String::as_str), |_| String::new());
        let pool = StreamPool::start().expect("threads");
        let site = Arc::new(site(place.path()));
        let open = || pool.open(listing(&site, request())).expect("room");
        // Each listing has started, and nobody takes more of it.
        let resting: Vec<BlockStream> = (0..20).map(|_| open()).collect();
        let firsts: Vec<Block> = resting.iter().map(next).collect();
        assert!(firsts.iter().all(|block| matches!(block, Ok(Some(_)))), "{firsts:?}");
        let whole = |listing: &BlockStream, first: Option<Block>| {
            let mut text = first.map_or(Vec::new(), |block| block.expect("a block").expect("not the end"));
            while let Some(block) = next(listing).expect("a block") {
                text.extend(block);
            }
            let entries: Vec<serde_json::Value> = serde_json::from_slice(&text).expect("JSON");
            assert!(
                entries.iter().map(|entry| entry["name"].as_str()).eq(names.iter().map(|name| Some(&**name)))
            );
        };
        whole(&open(), None);
        // Those that lost their names continue where they were.
        resting.iter().zip(firsts).for_each(|(listing, first)| whole(listing, Some(first)));
        drop(resting);
        assert_eq!(pool.0.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_listing_that_is_alone_keeps_to_one_thread() {
        let names: Vec<String> = (0..2000).map(|n| format!("{n:0100}")).collect();
        let place = place_of(names.iter().map(String::as_str), |_| String::new());
        let pool = StreamPool::start().expect("threads");
        let site = Arc::new(site(place.path()));
        for _ in 0..20 {
            // A thread that was woken in vain, and comes late, may take a block.
            testkit::until("all threads wait", || pool.0.queue().idle.len() == THREADS);
            let listing = pool.open(listing(&site, request())).expect("room");
            let mut threads = std::collections::HashSet::new();
            loop {
                let (give, block) = mpsc::channel();
                listing.next(move |block| {
                    give.send((block, std::thread::current().id())).expect("it is waited for");
                    // The next block is requested before this thread gets there.
                    std::thread::sleep(Duration::from_millis(1));
                });
                let (block, thread) = block.recv().expect("a block");
                threads.insert(thread);
                if block.expect("a block").is_none() {
                    break;
                }
            }
            assert_eq!(threads.len(), 1);
        }
    }

    #[test]
    fn listings_are_bounded_and_make_room_when_they_end() {
        let place = place_of(["a"].into_iter(), |_| String::new());
        let pool = StreamPool::start().expect("threads");
        let site = Arc::new(site(place.path()));
        let open = || pool.open(listing(&site, request()));
        let mut all: Vec<BlockStream> = (0..STREAMS).map(|_| open().expect("room")).collect();
        assert!(open().is_none());
        all.pop();
        assert!(open().is_some());
    }

    #[test]
    fn a_panic_ends_a_listing_and_no_other() {
        let place = place_of(["a"].into_iter(), |_| String::new());
        std::fs::create_dir(place.path().join(crate::faults::LISTING)).expect("a directory");
        let pool = StreamPool::start().expect("threads");
        let site = Arc::new(site(place.path()));
        let path = [crate::faults::LISTING.as_bytes(), b"/"].concat();
        for _ in 0..2 * THREADS {
            let listing = pool.open(listing(&site, ListingRequest { path: path.clone(), ..request() }));
            assert_eq!(next(&listing.expect("room")), Err(Error::Panicked));
        }
        assert!(matches!(next(&pool.open(listing(&site, request())).expect("room")), Ok(Some(_))));
    }
}
