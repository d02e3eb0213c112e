//! Threads for long reads: a few, each with its own connection, so that no thread that answers requests waits for the
//! disk.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use service::panics;
use tokio::sync::{Semaphore, TryAcquireError, oneshot};
use tokio::time::timeout;

use crate::store::Error;

use super::connection;

/// Reads at a time.
const THREADS: usize = 4;

/// How long a read waits for a thread.
const WAITS: Duration = Duration::from_secs(1);

/// How long a read may take.
const TIME: Duration = Duration::from_secs(5);

/// How many instructions of SQLite's virtual machine pass between two checks whether anybody still waits. They take
/// some ten microseconds.
const LOOK_EVERY: i32 = 1_000;

/// A read with its answer, for a thread's connection.
type Job = Box<dyn FnOnce(&mut Option<Connection>, &Path) + Send>;

/// The threads, and their queue.
pub struct Pool {
    queue: Option<SyncSender<Job>>,
    /// One permit per thread, held from when a read is queued until its thread is free again. So every queued read has
    /// a thread that is about to take it.
    free: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts the threads, which open their connections at their first read.
    pub fn start(path: &Path) -> Self {
        let (queue, jobs) = sync_channel(THREADS);
        let jobs = Arc::new(Mutex::new(jobs));
        let threads = (0..THREADS).map(|number| {
            let (jobs, path) = (Arc::clone(&jobs), path.to_owned());
            let thread = std::thread::Builder::new().name(format!("list-{number}"));
            thread.spawn(move || run(&jobs, &path)).expect("the system can start a thread")
        });
        Self { threads: threads.collect(), queue: Some(queue), free: Arc::new(Semaphore::new(THREADS)) }
    }

    /// Reads on one of the threads. A read that takes too long, or that nobody waits for any more, is stopped.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let free = Arc::clone(&self.free);
        let permit = match Arc::clone(&free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits) => {
                let waited = timeout(WAITS, free.acquire_owned()).await;
                waited.map_err(|_| Error::Busy)?.map_err(Error::failed)?
            }
            Err(closed) => return Err(Error::failed(closed)),
        };
        let (sender, receiver) = oneshot::channel();
        // It is dropped with this future.
        let waiting = Arc::new(());
        let waits = Arc::downgrade(&waiting);
        let job: Job = Box::new(move |connection, path| {
            // The permit is released last, even after a panic.
            let _permit = permit;
            let answer = read_while(&waits, connection, path, read);
            let _ = sender.send(answer);
        });
        let queue = self.queue.as_ref().ok_or_else(lost)?;
        queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Error::Busy,
            TrySendError::Disconnected(_) => lost(),
        })?;
        let answered = timeout(TIME, receiver).await;
        drop(waiting);
        answered.map_err(|_| Error::Busy)?.unwrap_or_else(|_| Err(lost()))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.take();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of lists ended in a panic");
            }
        }
    }
}

fn lost() -> Error {
    Error::failed("the read was lost")
}

fn run(jobs: &Mutex<Receiver<Job>>, path: &Path) {
    let mut connection = None;
    loop {
        // One thread holds the lock and waits for a job; the others wait for the lock.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { break };
        if let Err(panic) = panics::catch(|| job(&mut connection, path)) {
            panic.log("job", "a list");
        }
    }
}

fn read_while<T>(
    waits: &Weak<()>,
    connection: &mut Option<Connection>,
    path: &Path,
    read: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    if waits.strong_count() == 0 {
        return Err(lost());
    }
    let connection = match connection {
        Some(connection) => connection,
        none => none.insert(connection::reader(path)?),
    };
    let looked = waits.clone();
    connection.progress_handler(LOOK_EVERY, Some(move || looked.strong_count() == 0))?;
    read(connection)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Counts until it is interrupted.
    const FOREVER: &str =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";

    fn pool() -> (tempfile::TempDir, Pool) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.db");
        drop(connection::writer(&path).expect("it opens"));
        let pool = Pool::start(&path);
        (directory, pool)
    }

    fn one(connection: &Connection) -> Result<i64, Error> {
        Ok(connection.query_one("SELECT 1", [], |row| row.get(0))?)
    }

    fn forever(connection: &Connection) -> Result<i64, Error> {
        Ok(connection.query_one(FOREVER, [], |row| row.get(0))?)
    }

    #[tokio::test]
    async fn reads_that_panic_or_fail_cost_themselves_alone() {
        let (_directory, pool) = pool();
        for _ in 0..2 * THREADS {
            let panicked = pool.read(|connection| -> Result<(), Error> {
                let _statement = connection.prepare_cached("SELECT 1")?;
                panic!("on purpose")
            });
            assert!(panicked.await.is_err());
            let failed = pool.read(|connection| Ok(connection.prepare("SELECT x").map(drop)?));
            assert!(failed.await.is_err());
        }
        assert_eq!(pool.read(one).await.expect("every thread is there"), 1);
    }

    #[tokio::test]
    async fn nothing_can_be_written_by_a_read() {
        let (_directory, pool) = pool();
        let written = pool.read(|connection| Ok(connection.execute_batch("CREATE TABLE x (y)")?));
        assert!(written.await.is_err());
    }

    #[tokio::test]
    async fn a_read_that_nobody_waits_for_is_stopped_and_those_too_many_are_refused() {
        let (_directory, pool) = pool();
        let pool = Arc::new(pool);
        let reading = || {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.read(forever).await })
        };
        let readings: Vec<_> = (0..THREADS).map(|_| reading()).collect();
        while pool.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let begun = Instant::now();
        assert!(matches!(pool.read(one).await, Err(Error::Busy)));
        assert!(begun.elapsed() >= WAITS);
        // The clients leave.
        readings.into_iter().for_each(|reading| reading.abort());
        assert_eq!(pool.read(one).await.expect("their threads are free again"), 1);
    }

    #[tokio::test]
    async fn a_read_that_takes_too_long_is_given_up_and_leaves_its_thread() {
        let (_directory, pool) = pool();
        let begun = Instant::now();
        assert!(matches!(pool.read(forever).await, Err(Error::Busy)));
        assert!(begun.elapsed() >= TIME);
        // All threads are free, including that one.
        let all = pool.free.acquire_many(u32::try_from(THREADS).expect("few"));
        drop(timeout(TIME, all).await.expect("it is stopped").expect("it is open"));
        assert_eq!(pool.read(one).await.expect("it goes on"), 1);
    }
}
