//! A job queue for several threads. Adding a job wakes a thread only if one sleeps, so busy threads cost clients no
//! system call. A channel behind a lock would wake one thread for the job and another for the lock. Of the sleeping
//! threads, the last active one is woken: its caches are warm, and its allocations are reused before others allocate.
//! If it leaves jobs, it wakes the next one. So several jobs that come while no thread has a CPU do not wake them all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

/// The receiving end, of which each thread has a clone.
#[derive(Debug)]
pub struct Jobs<J>(Arc<Shared<J>>);

/// The sending end. When it is dropped, the threads finish the queued jobs, and then get no more.
#[derive(Debug)]
pub struct JobSender<J>(Arc<Shared<J>>);

#[derive(Debug)]
struct Shared<J> {
    state: Mutex<State<J>>,
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    /// Threads that sleep or are about to, and have not been woken. The last to fall asleep is at the end.
    asleep: Vec<Thread>,
    /// Whether one has been woken that has not looked for a job since.
    is_woken: bool,
    ended: bool,
}

/// A queue without jobs.
pub fn queue<J>() -> (JobSender<J>, Jobs<J>) {
    let state = State { jobs: VecDeque::new(), asleep: Vec::new(), is_woken: false, ended: false };
    let shared = Arc::new(Shared { state: Mutex::new(state) });
    (JobSender(Arc::clone(&shared)), Jobs(shared))
}

impl<J> Shared<J> {
    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> State<J> {
    /// The thread to wake; none if there is no job for it, or another has been woken and will take it.
    fn sleeper(&mut self) -> Option<Thread> {
        if self.is_woken || self.jobs.is_empty() {
            return None;
        }
        let sleeper = self.asleep.pop();
        self.is_woken = sleeper.is_some();
        sleeper
    }
}

impl<J> JobSender<J> {
    /// Adds a job, unless `most` jobs are already queued.
    ///
    /// # Errors
    /// Returns the job if the queue is full.
    pub fn send(&self, job: J, most: usize) -> Result<(), J> {
        let mut state = self.0.state();
        if state.jobs.len() >= most {
            return Err(job);
        }
        state.jobs.push_back(job);
        let sleeper = state.sleeper();
        drop(state);
        if let Some(thread) = sleeper {
            thread.unpark();
        }
        Ok(())
    }

    /// Drops the queued jobs for which `keep` is false.
    pub fn retain(&self, keep: impl FnMut(&J) -> bool) {
        let mut state = self.0.state();
        let jobs = std::mem::take(&mut state.jobs);
        let (kept, dropped): (VecDeque<J>, VecDeque<J>) = jobs.into_iter().partition(keep);
        state.jobs = kept;
        // What ends with a job may take its time, or use this queue.
        drop(state);
        drop(dropped);
    }
}

impl<J> Drop for JobSender<J> {
    fn drop(&mut self) {
        let sleepers = {
            let mut state = self.0.state();
            state.ended = true;
            std::mem::take(&mut state.asleep)
        };
        sleepers.iter().for_each(Thread::unpark);
    }
}

impl<J> Jobs<J> {
    /// Waits for the next job; none once the queue is empty and the sender is dropped.
    pub fn next(&self) -> Option<J> {
        let me = thread::current();
        let mut has_slept = false;
        loop {
            let mut state = self.0.state();
            // A thread that woke by itself must not be woken again.
            let asleep = state.asleep.len();
            state.asleep.retain(|thread| thread.id() != me.id());
            if has_slept && state.asleep.len() == asleep {
                state.is_woken = false;
            }
            if let Some(job) = state.jobs.pop_front() {
                let sleeper = state.sleeper();
                drop(state);
                if let Some(thread) = sleeper {
                    thread.unpark();
                }
                return Some(job);
            }
            if state.ended {
                return None;
            }
            has_slept = true;
            state.asleep.push(me.clone());
            drop(state);
            // Returns at once if the thread was woken before it slept.
            thread::park();
        }
    }
}

impl<J> Clone for Jobs<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn each_job_is_done_once_whoever_sleeps_meanwhile() {
        const JOBS: usize = 20_000;
        let (sender, jobs) = queue();
        let done: Arc<[AtomicUsize]> = (0..JOBS).map(|_| AtomicUsize::new(0)).collect();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (jobs, done) = (jobs.clone(), Arc::clone(&done));
                thread::spawn(move || {
                    while let Some(job) = jobs.next() {
                        let job: usize = job;
                        done[job].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for job in 0..JOBS {
            sender.send(job, usize::MAX).expect("room");
            // Lets the threads fall asleep now and then.
            if job % 64 == 0 {
                while done[job].load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
            }
        }
        drop(sender);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn threads_are_woken_one_after_the_other_while_there_are_jobs() {
        let (sender, jobs) = queue();
        let sleepers: Vec<_> = (0..2).map(|_| thread::spawn(thread::park)).collect();
        jobs.0.state().asleep = sleepers.iter().map(|sleeper| sleeper.thread().clone()).collect();
        let asleep = || jobs.0.state().asleep.len();
        for job in 1..=4 {
            sender.send(job, 4).expect("room");
            assert_eq!(asleep(), 1, "one is woken for all");
        }
        assert_eq!((jobs.next(), asleep()), (Some(1), 1), "the one that was woken will look");
        // As if it had looked.
        jobs.0.state().is_woken = false;
        assert_eq!((jobs.next(), asleep()), (Some(2), 0), "there are more");
        jobs.0.state().is_woken = false;
        assert_eq!((jobs.next(), jobs.next()), (Some(3), Some(4)));
        sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
    }

    #[test]
    fn what_there_is_no_room_for_is_given_back() {
        let (sender, jobs) = queue();
        assert_eq!((sender.send(1, 1), sender.send(2, 1)), (Ok(()), Err(2)));
        assert_eq!(jobs.next(), Some(1));
        assert_eq!(sender.send(3, 1), Ok(()));
        assert_eq!((sender.send(4, 2), sender.send(5, 2)), (Ok(()), Err(5)));
        sender.retain(|job| *job != 4);
        drop(sender);
        assert_eq!((jobs.next(), jobs.next()), (Some(3), None), "what waits is done");
    }
}
