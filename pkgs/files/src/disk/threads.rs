//! The threads that wait for the disk, so that no worker does.
//!
//! Results are reported by a call on the thread that did the work.
//!
//! A connection or stream waits for one job at a time, but its job stays in the queue when it ends, and another one can
//! take its place. So jobs that nobody waits for any more are not done, and make room when there are many.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, pread};
use service::panics;

use crate::site::Site;
use crate::site::lookup::Lookup;
use crate::site::root::{Error, Found, LookupMode};
use crate::threads::background;
use crate::threads::health::{MonitoredThread, STUCK, ThreadHealth};
use crate::threads::interest::Interest;
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

/// How long a waiting lookup relies on a directory having only files.
const HINT_FOR: Duration = Duration::from_millis(100);

/// A look-up that waits for longer has waited long for its turn. With 128 connections that ask for cold files, whole
/// answers take 3 ms.
const LONG: Duration = Duration::from_millis(10);

/// Look-ups that may wait, for a thread or for a file descriptor. With the longest paths, of 4 KiB, they take 64 MiB,
/// and more where a rule has several to try. At 100 µs each, the threads take half a second for them.
const LOOKUPS: usize = 16_384;

/// A queue of this many jobs is searched too before it becomes longer. It has no limit: beside look-ups, it has one
/// read for each body that waits, and those of bodies that have ended.
const SEARCHED_FROM: usize = 2 * LOOKUPS;

/// While there are too many, jobs that nobody waits for any more are searched for, at most this often: a search takes
/// about a millisecond, in which nobody else uses the queue.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// What a thread does with its buffer.
type Work = Box<dyn FnOnce(&mut [u8]) + Send>;

/// A job.
enum Job {
    Lookup(Box<DiskLookup>),
    Other { work: Work, interest: Interest },
}

/// The threads, for all workers.
#[derive(Clone)]
pub struct DiskThreads {
    health: ThreadHealth,
    jobs: Arc<JobSender<Job>>,
    /// How many look-ups wait.
    lookups: Arc<AtomicUsize>,
    last_turn: Arc<LastTurn>,
    prefetches: Arc<AtomicUsize>,
    reads_ahead: Arc<AtomicUsize>,
    scarce: Arc<Scarce>,
    /// When jobs that nobody waits for were last searched for.
    searched: Arc<Mutex<Option<Instant>>>,
}

/// What to do with a path and what it names.
type Then = Box<dyn FnOnce(Vec<u8>, Result<Found, Error>) + Send>;

/// A lookup that a thread does, now or again later.
struct DiskLookup {
    site: Arc<Site>,
    lookup: Lookup,
    interest: Interest,
    done: Then,
    /// One of [`LOOKUPS`], for as long as it waits.
    place: OneOf,
    /// Since when it waits.
    queued: Instant,
}

/// When the look-up was queued whose turn came last.
#[derive(Debug)]
struct LastTurn {
    began: Instant,
    /// In microseconds after that.
    queued: AtomicU64,
}

/// The state of a shortage of file descriptors.
#[derive(Default)]
struct Scarce {
    /// Lookups that wait for one.
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
        let scarce = Arc::<Scarce>::default();
        let last_turn = Arc::new(LastTurn { began: Instant::now(), queued: AtomicU64::new(0) });
        for number in 0..THREADS {
            let jobs = jobs.clone();
            let thread = health.thread(number);
            // A waiting lookup does not keep threads from ending.
            let scarce = Arc::downgrade(&scarce);
            let last_turn = Arc::clone(&last_turn);
            let run = move || work(&jobs, &thread, &scarce, &last_turn);
            background::spawn(format!("files-disk-{number}"), run)?;
        }
        let jobs = Arc::new(sender);
        let (lookups, prefetches, reads_ahead, searched) = Default::default();
        Ok(Self { health, jobs, lookups, last_turn, prefetches, reads_ahead, scarce, searched })
    }

    /// Whether the threads are alive, for the watchdog.
    pub fn is_alive(&self) -> bool {
        self.health.is_alive(STUCK)
    }

    /// Finds out what a path names, or the first of several. Waits a while if there is no file descriptor. If nobody is
    /// interested any more when its turn comes, `done` is dropped without a call. It is called at once, with
    /// [`Error::Exhausted`], if too many wait.
    pub fn find(
        &self,
        site: Arc<Site>,
        lookup: Lookup,
        interest: Interest,
        done: impl FnOnce(Vec<u8>, Result<Found, Error>) + Send + 'static,
    ) {
        let Some(place) = self.place() else {
            return done(lookup.asked().to_vec(), Err(Error::Exhausted));
        };
        let queued = Instant::now();
        self.look(DiskLookup { site, lookup, interest, done: Box::new(done), place, queued });
    }

    /// Whether look-ups wait long for their turn, for instance because the disk does not answer. What needs only memory
    /// does better not to wait behind them.
    pub fn is_behind(&self) -> bool {
        self.lookups.load(Ordering::Relaxed) > 0 && self.last_turn.age() > LONG
    }

    /// A place for a look-up; none if as many wait for which somebody waits.
    fn place(&self) -> Option<OneOf> {
        OneOf::these(&self.lookups, LOOKUPS).or_else(|| {
            self.make_room();
            OneOf::these(&self.lookups, LOOKUPS)
        })
    }

    fn look(&self, this: DiskLookup) {
        self.send(Job::Lookup(Box::new(this)));
    }

    fn send(&self, job: Job) {
        // The second time, the queue takes it in any case.
        let _ = self.jobs.send(job, SEARCHED_FROM).or_else(|job| {
            self.make_room();
            self.jobs.send(job, usize::MAX)
        });
    }

    /// Drops jobs that nobody waits for any more, unless that was just done.
    fn make_room(&self) {
        let now = Instant::now();
        let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
        if searched.is_some_and(|searched| now.duration_since(searched) < SEARCH_EVERY) {
            return;
        }
        *searched = Some(now);
        drop(searched);
        self.jobs.retain(Job::is_wanted);
        self.scarce.forget_unwanted();
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
        self.run_for(Interest::ALWAYS, job);
    }

    /// The same, but if nobody is interested any more when its turn comes, the job is dropped.
    pub fn run_for(&self, interest: Interest, job: impl FnOnce(&mut [u8]) + Send + 'static) {
        // None is refused, since whoever waits for one was let in before, and has no other.
        self.send(Job::Other { work: Box::new(job), interest });
    }
}

impl Job {
    /// Whether somebody still waits for it: its stream may have been reset, or its connection may have ended.
    fn is_wanted(&self) -> bool {
        match self {
            Self::Lookup(this) => this.interest.is_there(),
            Self::Other { interest, .. } => interest.is_there(),
        }
    }

    /// Does it, with the thread's buffer.
    fn run(self, scarce: &Weak<Scarce>, buffer: &mut [u8]) {
        match self {
            Self::Lookup(this) => this.run(scarce),
            Self::Other { work, .. } => work(buffer),
        }
    }
}

impl DiskLookup {
    /// Looks it up, and reports what is found, unless it has to wait for a file descriptor.
    fn run(mut self, scarce: &Weak<Scarce>) {
        if self.queued.elapsed() > HINT_FOR {
            self.lookup.forget_files();
        }
        let find = || {
            #[cfg(test)]
            crate::faults::strike(crate::faults::LOOKUP, self.lookup.asked());
            self.lookup.find(&self.site, LookupMode::MayBlock)
        };
        let (path, found) = panics::catch(find).unwrap_or_else(|panic| {
            let asked = self.lookup.asked();
            panic.log("lookup", &String::from_utf8_lossy(asked));
            (None, Err(Error::Failed(Errno::IO)))
        });
        match (found, scarce.upgrade()) {
            (Err(Error::Exhausted), Some(scarce)) if self.queued.elapsed() < SCARCE_FOR => scarce.keep(self),
            (found, _) => {
                let Self { lookup, done, place, .. } = self;
                // Whoever is told may look up something else at once.
                drop(place);
                done(path.unwrap_or_else(|| lookup.into_asked()), found);
            }
        }
    }
}

impl LastTurn {
    fn record(&self, queued: Instant) {
        let after = queued.saturating_duration_since(self.began);
        self.queued.store(after.as_micros() as u64, Ordering::Relaxed);
    }

    /// How long ago it was queued.
    fn age(&self) -> Duration {
        let queued = Duration::from_micros(self.queued.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(queued)
    }
}

impl Scarce {
    /// Keeps a lookup until there are file descriptors again.
    fn keep(&self, this: DiskLookup) {
        let mut waiting = self.waiting();
        self.times.fetch_add(1, Ordering::Relaxed);
        waiting.push(this);
    }

    /// Drops those that nobody waits for any more.
    fn forget_unwanted(&self) {
        let unwanted: Vec<_> = self.waiting().extract_if(.., |this| !this.interest.is_there()).collect();
        // Only now, without the lock: what ends with a look-up may take its time.
        drop(unwanted);
    }

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

fn work(jobs: &Jobs<Job>, thread: &MonitoredThread, scarce: &Weak<Scarce>, last_turn: &LastTurn) {
    let mut buffer = vec![0; READ_BYTES];
    while let Some(job) = jobs.next() {
        if let Job::Lookup(this) = &job {
            last_turn.record(this.queued);
        }
        thread.at(|| {
            if job.is_wanted() {
                job.run(scarce, &mut buffer);
            }
        });
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

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tempfile::TempDir;

    use super::*;
    use crate::site::Options;
    use crate::site::root::{DirectoryHint, Symlinks};
    use crate::threads::interest::Waiter;

    /// What was looked up for whom, and why it was not found.
    type Told = (&'static str, Option<Error>);

    /// Makes all threads wait until somebody else waits at this barrier.
    pub fn occupy(disk: &DiskThreads) -> Arc<Barrier> {
        let barriers = [(); 2].map(|()| Arc::new(Barrier::new(THREADS + 1)));
        for _ in 0..THREADS {
            let barriers = barriers.clone();
            disk.run(move |_| {
                for barrier in &barriers {
                    barrier.wait();
                }
            });
        }
        let [begun, end] = barriers;
        begun.wait();
        end
    }

    /// Threads that are busy, and look-ups for them.
    struct Busy {
        place: TempDir,
        site: Arc<Site>,
        disk: DiskThreads,
        /// Where all threads wait.
        end: Arc<Barrier>,
        give: Sender<Told>,
    }

    impl Busy {
        fn start() -> (Self, Receiver<Told>) {
            let place = tempfile::tempdir().expect("a directory");
            std::fs::write(place.path().join("a"), "text").expect("a file");
            let options = Options {
                root: place.path().to_owned(),
                rules: None,
                symlinks: Symlinks::Beneath,
                hidden: false,
                listing: false,
                precompressed: false,
                charset: String::new(),
                origin: None,
            };
            let site = Arc::new(Site::load(&options).expect("a site"));
            let disk = DiskThreads::start().expect("threads");
            let end = occupy(&disk);
            let (give, results) = channel();
            (Self { place, site, disk, end, give }, results)
        }

        fn find(&self, interest: Interest, whom: &'static str) {
            let lookup = Lookup::One(b"a".to_vec(), DirectoryHint::NoCodings);
            let give = self.give.clone();
            self.disk.find(Arc::clone(&self.site), lookup, interest, move |_, found| {
                give.send((whom, found.err())).expect("it is received");
            });
        }

        /// Lets the threads work until nothing is left to look up, and returns what they have told.
        fn end(self, results: &Receiver<Told>) -> Vec<Told> {
            self.end.wait();
            drop(self.give);
            let all = results.iter().collect();
            // Until then, the file is there.
            drop(self.place);
            all
        }
    }

    #[test]
    fn what_nobody_waits_for_when_its_turn_comes_is_not_looked_up() {
        let (busy, results) = Busy::start();
        let (left, stays) = (Waiter::default(), Waiter::default());
        busy.find(left.interest(), "left");
        busy.find(stays.interest(), "stays");
        busy.find(Interest::ALWAYS, "always");
        drop(left);
        let mut all = busy.end(&results);
        all.sort_unstable_by_key(|(whom, _)| *whom);
        assert_eq!(all, [("always", None), ("stays", None)]);
    }

    #[test]
    fn a_full_queue_has_room_for_those_who_wait_and_refuses_more() {
        let (busy, results) = Busy::start();
        let (left, stays) = (Waiter::default(), Waiter::default());
        (0..LOOKUPS).for_each(|_| busy.find(left.interest(), "left"));
        drop(left);
        (0..LOOKUPS).for_each(|_| busy.find(stays.interest(), "stays"));
        assert!(results.try_recv().is_err(), "there is room in place of those who left");
        busy.find(Interest::ALWAYS, "late");
        assert_eq!(results.try_recv(), Ok(("late", Some(Error::Exhausted))));
        let all = busy.end(&results);
        assert_eq!(all.len(), LOOKUPS);
        assert!(all.iter().all(|result| *result == ("stays", None)));
    }

    #[test]
    fn reads_take_no_place_of_a_look_up_and_those_for_nobody_are_dropped() {
        let (busy, results) = Busy::start();
        let (left, stays) = (Waiter::default(), Waiter::default());
        let held = Arc::new(());
        let read = |waiter: &Waiter| {
            let (held, give) = (Arc::clone(&held), busy.give.clone());
            busy.disk.run_for(waiter.interest(), move |_| {
                give.send(("read", None)).expect("it is received");
                drop(held);
            });
        };
        (0..SEARCHED_FROM).for_each(|_| read(&left));
        busy.find(stays.interest(), "found");
        assert!(results.try_recv().is_err(), "it is not refused");
        drop(left);
        assert_eq!(Arc::strong_count(&held), 1 + SEARCHED_FROM);
        // The queue was just searched.
        *busy.disk.searched.lock().expect("no panic") = None;
        read(&stays);
        assert_eq!(Arc::strong_count(&held), 2);
        let all = busy.end(&results);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all.contains(&("found", None)) && all.contains(&("read", None)));
    }

    #[test]
    fn a_read_for_nobody_is_not_done_when_its_turn_comes() {
        let (busy, results) = Busy::start();
        let (left, stays) = (Waiter::default(), Waiter::default());
        for (waiter, whom) in [(&left, "left"), (&stays, "stays")] {
            let give = busy.give.clone();
            busy.disk.run_for(waiter.interest(), move |_| give.send((whom, None)).expect("it is received"));
        }
        drop(left);
        assert_eq!(busy.end(&results), [("stays", None)]);
    }

    #[test]
    fn threads_are_behind_while_look_ups_wait_long_for_their_turn() {
        let (busy, results) = Busy::start();
        let (disk, last_turn) = (busy.disk.clone(), Arc::clone(&busy.disk.last_turn));
        last_turn.record(last_turn.began);
        testkit::until("time passes", || last_turn.age() > LONG);
        assert!(!disk.is_behind(), "none waits");
        // As if one that was just queued had had its turn.
        last_turn.record(Instant::now() + Duration::from_secs(3600));
        busy.find(Interest::ALWAYS, "waits");
        assert!(!disk.is_behind());
        last_turn.record(last_turn.began);
        assert!(disk.is_behind(), "those that were queued later still wait");
        assert_eq!(busy.end(&results), [("waits", None)]);
        assert!(!disk.is_behind(), "none waits any more");
    }

    #[test]
    fn look_ups_that_wait_for_a_descriptor_keep_their_places_while_somebody_waits() {
        let (busy, results) = Busy::start();
        let (left, stays) = (Waiter::default(), Waiter::default());
        // As if there had been none for them.
        let keep = |waiter: &Waiter, whom: &'static str| {
            let give = busy.give.clone();
            busy.disk.scarce.keep(DiskLookup {
                site: Arc::clone(&busy.site),
                lookup: Lookup::One(b"a".to_vec(), DirectoryHint::NoCodings),
                interest: waiter.interest(),
                done: Box::new(move |_, found: Result<Found, Error>| {
                    give.send((whom, found.err())).expect("it is received");
                }),
                place: OneOf::these(&busy.disk.lookups, LOOKUPS).expect("a place"),
                queued: Instant::now(),
            });
        };
        keep(&stays, "stays");
        (1..LOOKUPS).for_each(|_| keep(&left, "left"));
        drop(left);
        (1..LOOKUPS).for_each(|_| busy.find(stays.interest(), "found"));
        assert!(results.try_recv().is_err(), "there is room in place of those who left");
        busy.find(Interest::ALWAYS, "late");
        assert_eq!(results.try_recv(), Ok(("late", Some(Error::Exhausted))));
        busy.disk.look_again();
        let all = busy.end(&results);
        let told = |whom| all.iter().filter(|result| **result == (whom, None)).count();
        assert_eq!((all.len(), told("stays"), told("found")), (LOOKUPS, 1, LOOKUPS - 1));
    }
}
