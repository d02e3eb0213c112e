//! Since when each thread has been running its job without progress, for the watchdog.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use service::panics;

/// How long a job may take, or go without [progress](progressed), before its thread counts as stuck. Disks may be slow,
/// or far away.
pub const STUCK: Duration = Duration::from_secs(60);

/// Since when each thread has been running its job without progress, for the watchdog.
#[derive(Clone, Debug)]
pub struct ThreadHealth {
    /// For each thread, when its job began or last made progress, in milliseconds since `start`; 0 while it waits for a
    /// job, and [`ENDED`] once it has ended.
    since: Arc<[AtomicU64]>,
    start: Instant,
}

/// The value of a thread that has ended.
const ENDED: u64 = u64::MAX;

thread_local! {
    /// The state and the number of this thread while it runs a job.
    static RUNNING: RefCell<Option<(ThreadHealth, usize)>> = const { RefCell::new(None) };
}

/// Records that this thread's job goes on, for jobs that look at many files: each may take as long as a disk does. Does
/// nothing on threads that aren't monitored.
pub fn progressed() {
    RUNNING.with_borrow(|running| {
        if let Some((health, number)) = running {
            health.since[*number].store(health.now(), Ordering::Relaxed);
        }
    });
}

/// A thread that records since when it has been running its job. Dropping this records that the thread has ended.
#[derive(Debug)]
pub struct MonitoredThread {
    health: ThreadHealth,
    number: usize,
}

impl ThreadHealth {
    /// The state of `threads` threads, which all wait for jobs.
    pub fn new(threads: usize) -> Self {
        Self { since: (0..threads).map(|_| AtomicU64::new(0)).collect(), start: Instant::now() }
    }

    /// The handle of the thread with this number.
    pub fn thread(&self, number: usize) -> MonitoredThread {
        MonitoredThread { health: self.clone(), number }
    }

    /// Whether no thread has ended, or has been running its job without progress for longer than `stuck`.
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

impl MonitoredThread {
    /// Runs a job, and logs its panic.
    pub fn at(&self, job: impl FnOnce()) {
        let since = &self.health.since[self.number];
        since.store(self.health.now(), Ordering::Relaxed);
        RUNNING.set(Some((self.health.clone(), self.number)));
        if let Err(panic) = panics::catch(job) {
            panic.log("job", "of a thread that waits for the disk");
        }
        RUNNING.set(None);
        since.store(0, Ordering::Relaxed);
    }
}

impl Drop for MonitoredThread {
    fn drop(&mut self) {
        self.health.since[self.number].store(ENDED, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Whether a thread whose job does this `work` makes progress by it.
    pub fn is_progress(work: impl FnOnce()) -> bool {
        let health = ThreadHealth::new(1);
        let mut has_progressed = false;
        health.thread(0).at(|| {
            let since = || health.since[0].load(Ordering::Relaxed);
            let begun = since();
            while health.now() == begun {
                std::thread::yield_now();
            }
            work();
            has_progressed = since() > begun;
        });
        has_progressed
    }

    #[test]
    fn a_long_job_is_not_stuck_while_it_makes_progress() {
        assert!(!is_progress(|| ()));
        assert!(is_progress(progressed));
        let health = ThreadHealth::new(2);
        let (first, second) = (health.thread(0), health.thread(1));
        let since = |number: usize| health.since[number].load(Ordering::Relaxed);
        let mut of_first = ENDED;
        first.at(|| ());
        second.at(|| {
            progressed();
            of_first = since(0);
        });
        // Both jobs are over: what this thread does now is no progress of them.
        progressed();
        assert_eq!((of_first, since(0), since(1)), (0, 0, 0));
    }

    #[test]
    fn a_thread_that_is_stuck_or_has_ended_is_seen() {
        let health = ThreadHealth::new(2);
        let (first, second) = (health.thread(0), health.thread(1));
        assert!(health.is_alive(Duration::ZERO));
        first.at(|| {
            assert!(health.is_alive(STUCK));
            while health.is_alive(Duration::ZERO) {
                std::thread::yield_now();
            }
        });
        first.at(|| panic!("on purpose"));
        assert!(health.is_alive(Duration::ZERO), "a job that is over");
        drop(second);
        assert!(!health.is_alive(STUCK));
    }
}
