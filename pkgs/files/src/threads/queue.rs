//! Jobs for several threads. Whoever adds one wakes a thread only where one sleeps, so that threads that are busy cost their
//! clients no call; a channel behind a lock wakes one for the job, and another for the lock.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The end that takes jobs, one for each thread.
#[derive(Debug)]
pub struct Jobs<J>(Arc<Shared<J>>);

/// The end that adds them. Without it the threads do what is left, and have no further job.
#[derive(Debug)]
pub struct JobSender<J>(Arc<Shared<J>>);

#[derive(Debug)]
struct Shared<J> {
    state: Mutex<State<J>>,
    added: Condvar,
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    /// Threads that sleep and have not been woken; never too few.
    asleep: usize,
    ended: bool,
}

/// A queue without jobs.
pub fn queue<J>() -> (JobSender<J>, Jobs<J>) {
    let state = State { jobs: VecDeque::new(), asleep: 0, ended: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), added: Condvar::new() });
    (JobSender(Arc::clone(&shared)), Jobs(shared))
}

impl<J> Shared<J> {
    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> JobSender<J> {
    /// Adds a job, unless so many wait already; then it is given back.
    ///
    /// # Errors
    /// The job.
    pub fn send(&self, job: J, most: usize) -> Result<(), J> {
        let mut state = self.0.state();
        if state.jobs.len() >= most {
            return Err(job);
        }
        state.jobs.push_back(job);
        let wakes = state.asleep > 0;
        state.asleep -= usize::from(wakes);
        drop(state);
        if wakes {
            self.0.added.notify_one();
        }
        Ok(())
    }
}

impl<J> Drop for JobSender<J> {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.added.notify_all();
    }
}

impl<J> Jobs<J> {
    /// The next job, once there is one; none where there will be none.
    pub fn next(&self) -> Option<J> {
        let mut state = self.0.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.ended {
                return None;
            }
            // Who wakes it counts it off. Where nobody did, it counts twice, and somebody is woken for nothing once.
            state.asleep += 1;
            state = self.0.added.wait(state).unwrap_or_else(PoisonError::into_inner);
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
                std::thread::spawn(move || {
                    while let Some(job) = jobs.next() {
                        let job: usize = job;
                        done[job].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for job in 0..JOBS {
            sender.send(job, usize::MAX).expect("room");
            // Threads fall asleep now and then.
            if job % 64 == 0 {
                while done[job].load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
            }
        }
        drop(sender);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn what_there_is_no_room_for_is_given_back() {
        let (sender, jobs) = queue();
        assert_eq!((sender.send(1, 1), sender.send(2, 1)), (Ok(()), Err(2)));
        assert_eq!(jobs.next(), Some(1));
        assert_eq!(sender.send(3, 1), Ok(()));
        drop(sender);
        assert_eq!((jobs.next(), jobs.next()), (Some(3), None), "what waits is done");
    }
}
