//! Threads for long computations: passwords and compression. They start when first needed, and accept only as many jobs
//! as their queue has room for.

use std::fmt;
use std::sync::OnceLock;

use super::background;
use super::health::{MonitoredThread, ThreadHealth};
use super::queue::{JobSender, Jobs, queue};

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads with a queue. The threads end when this is dropped.
pub struct ThreadPool {
    name: &'static str,
    /// The most jobs that wait for a thread; further ones are refused.
    most: usize,
    health: ThreadHealth,
    threads: usize,
    jobs: OnceLock<Option<JobSender<Job>>>,
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ThreadPool {
    /// A pool of `threads` threads, named `name` and a number, whose queue holds up to `most` jobs.
    pub fn new(name: &'static str, threads: usize, most: usize) -> Self {
        Self { name, most, health: ThreadHealth::new(threads), threads, jobs: OnceLock::new() }
    }

    /// Queues a job. Returns false if the queue is full, or the threads can't be started.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let jobs = self.jobs.get_or_init(|| self.start());
        jobs.as_ref().is_some_and(|jobs| jobs.send(Box::new(job), self.most).is_ok())
    }

    /// Since when each thread has been running its job, for the watchdog.
    pub fn health(&self) -> &ThreadHealth {
        &self.health
    }

    fn start(&self) -> Option<JobSender<Job>> {
        let (sender, jobs) = queue();
        for number in 0..self.threads {
            let (jobs, thread) = (jobs.clone(), self.health.thread(number));
            let name = format!("{}-{number}", self.name);
            let started = background::spawn(name, move || work(&jobs, &thread));
            if let Err(error) = started {
                tracing::error!(%error, "cannot start a thread");
                return None;
            }
        }
        Some(sender)
    }
}

fn work(jobs: &Jobs<Job>, thread: &MonitoredThread) {
    while let Some(job) = jobs.next() {
        thread.at(job);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn no_more_jobs_are_taken_than_there_is_room_for() {
        let pool = ThreadPool::new("test", 1, 2);
        let (begun, has_begun) = channel();
        let (go, gone) = channel::<()>();
        assert!(pool.run(move || {
            begun.send(()).expect("it is waited for");
            gone.recv().expect("it is let go");
        }));
        has_begun.recv().expect("it begins");
        let (done, all_done) = channel();
        for _ in 0..2 {
            let done = done.clone();
            assert!(pool.run(move || done.send(()).expect("it is waited for")));
        }
        assert!(!pool.run(|| ()));
        go.send(()).expect("it waits");
        for _ in 0..2 {
            all_done.recv().expect("it is done");
        }
    }
}
