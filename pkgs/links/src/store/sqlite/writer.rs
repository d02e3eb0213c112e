//! The writer thread: all waiting jobs become one transaction, and are answered after its commit.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use service::panics;
use service::ready::{Heartbeats, Watch};
use tokio::sync::oneshot;

use crate::domains::SharedDomains;

use super::tables::domains;
use super::work::{Changes, WriteContext};
use crate::store::{Change, Error, OnChange, Pending};

/// The most jobs in one transaction. With more, the first would wait too long for its answer.
const GROUP: usize = 512;

/// After this many pages in the log, a commit writes them back. A short log is quick to read (sqlite.org/wal.html,
/// section 2.3).
const CHECKPOINT_PAGES: i64 = 1_000;

/// [`CHECKPOINT_PAGES`] during an import. With random codes, each transaction of an import touches most pages of the
/// index, so fewer checkpoints write less.
const IMPORT_CHECKPOINT_PAGES: i64 = 16_384;

/// How often an idle writer checks for commits by other processes.
const FOREIGN_POLL: Duration = Duration::from_millis(100);

/// Answers a job once the fate of the transaction is known. The argument is the error, if the transaction was lost.
type Answer = Box<dyn FnOnce(Option<&Error>) + Send>;

/// The result of a job's part of the transaction.
enum SavepointOutcome {
    Keep,
    /// The job failed alone.
    Undo,
    /// The job failed, and the whole transaction is lost.
    Lost(Error),
}

/// A job for the writer.
struct Job {
    /// Whether the answer promises that the work survives a power cut.
    durable: bool,
    /// Does the work, unless the transaction is already lost, and prepares the answer.
    run: Run,
}

type Run = Box<dyn FnOnce(Option<&mut WriteContext<'_>>) -> (SavepointOutcome, Answer) + Send>;

/// The queue to the writer thread.
pub(super) struct WriterHandle {
    queue: Mutex<Option<SyncSender<Job>>>,
    depth: Arc<AtomicUsize>,
    commits: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
    beats: Heartbeats,
    writable: bool,
}

impl WriterHandle {
    pub fn start(
        connection: Connection,
        writable: bool,
        queue: usize,
        on_change: OnChange,
        domains: Arc<SharedDomains>,
    ) -> Self {
        let (sender, receiver) = sync_channel(queue);
        let depth = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&depth);
        let commits = Arc::new(AtomicU64::new(0));
        let made = Arc::clone(&commits);
        let beats = Heartbeats::new(1);
        let beating = beats.clone();
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || {
                Writer {
                    connection,
                    on_change,
                    domains,
                    // There may have been commits since the domains were read.
                    stale: true,
                    waiting,
                    commits: made,
                    foreign: None,
                    synchronous: true,
                    checkpoint: CHECKPOINT_PAGES,
                    writable,
                    beats: beating,
                }
                .run(&receiver);
            })
            .expect("the system can start a thread");
        Self {
            queue: Mutex::new(Some(sender)),
            depth,
            commits,
            thread: Mutex::new(Some(thread)),
            beats,
            writable,
        }
    }

    /// Submits a job whose answer promises durability.
    pub fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriteContext<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Pending<T> {
        self.send(true, work)
    }

    /// Submits a job that a power cut may undo, but not a crash of the process.
    pub fn submit_clicks<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriteContext<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Pending<T> {
        self.send(false, work)
    }

    fn send<T: Send + 'static>(
        &self,
        durable: bool,
        work: impl FnOnce(&mut WriteContext<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Pending<T> {
        if !self.writable {
            return Pending::refused(Error::ReadOnly);
        }
        let (sender, receiver) = oneshot::channel();
        let run: Run = Box::new(move |at_hand| {
            // A panic fails only the job, whose part of the transaction is undone.
            let done = at_hand.map(|at_hand| {
                panics::catch(|| work(at_hand)).unwrap_or_else(|panic| {
                    panic.log("job", "a write");
                    Err(Error::Panicked)
                })
            });
            let (standing, outcome) = match done {
                Some(Ok(value)) => (SavepointOutcome::Keep, Ok(value)),
                Some(Err(error)) if error.ends_transaction() => {
                    (SavepointOutcome::Lost(error), Err(Error::Closed))
                }
                Some(Err(error)) => (SavepointOutcome::Undo, Err(error)),
                None => (SavepointOutcome::Keep, Err(Error::Closed)),
            };
            let answer: Answer = Box::new(move |lost| {
                let _ = sender.send(match lost {
                    None => outcome,
                    Some(error) => Err(error.of_transaction()),
                });
            });
            (standing, answer)
        });
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = queue.as_ref() else { return Pending::refused(Error::Closed) };
        self.depth.fetch_add(1, Ordering::Relaxed);
        match queue.try_send(Job { durable, run }) {
            Ok(()) => Pending::of(receiver),
            Err(error) => {
                self.depth.fetch_sub(1, Ordering::Relaxed);
                Pending::refused(match error {
                    TrySendError::Full(_) => Error::Busy,
                    TrySendError::Disconnected(_) => Error::Closed,
                })
            }
        }
    }

    /// The number of commits, including those of other processes. It is incremented before anybody learns of a commit.
    pub fn commits(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.commits)
    }

    pub fn is_writable(&self) -> bool {
        self.writable
    }

    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Starts to watch the thread. It counts as stuck if one job takes `stuck`.
    pub fn watch(&self, stuck: Duration) -> Watch {
        self.beats.watch(stuck)
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer ended in a panic");
        }
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        self.close();
    }
}

struct Writer {
    connection: Connection,
    on_change: OnChange,
    domains: Arc<SharedDomains>,
    /// Whether the published domains are outdated.
    stale: bool,
    waiting: Arc<AtomicUsize>,
    commits: Arc<AtomicU64>,
    /// `data_version` at the last check.
    foreign: Option<i64>,
    /// Whether the connection has `synchronous=FULL`.
    synchronous: bool,
    /// The connection's `wal_autocheckpoint`.
    checkpoint: i64,
    writable: bool,
    beats: Heartbeats,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Job>) {
        self.look_for_foreign_commits();
        loop {
            self.beats.beat(0);
            match queue.recv_timeout(FOREIGN_POLL) {
                Ok(first) => {
                    let rest = queue.try_iter().take(GROUP - 1);
                    let group: Vec<Job> = std::iter::once(first).chain(rest).collect();
                    let size = group.len();
                    self.transact(group);
                    self.waiting.fetch_sub(size, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look_for_foreign_commits();
        }
        if self.writable {
            // None of it is needed for durability. It makes the next start quick. A checkpoint holds the lock for
            // writing, so it does not wait for readers, which may stay for minutes: other processes could not write
            // meanwhile.
            let tidied = self.connection.execute_batch("PRAGMA optimize").and_then(|()| {
                self.connection.busy_timeout(Duration::ZERO)?;
                self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
            });
            if let Err(error) = tidied {
                tracing::warn!(%error, "cannot tidy the database up");
            }
        }
        self.beats.done(0);
    }

    /// Checks for commits by other connections. They change `data_version`, while our own do not.
    fn look_for_foreign_commits(&mut self) {
        let version = self
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)));
        if let Ok(version) = version
            && self.foreign.replace(version).is_some_and(|last| last != version)
        {
            self.commits.fetch_add(1, Ordering::Release);
            self.stale = true;
            (self.on_change)(Change::All);
        }
        if self.stale {
            self.publish_domains();
        }
    }

    /// Publishes the current domains to all threads. If they cannot be read, the next check tries again.
    fn publish_domains(&mut self) {
        match domains::load(&self.connection) {
            Ok(domains) => {
                self.domains.set(domains);
                self.stale = false;
            }
            Err(error) => {
                self.stale = true;
                tracing::error!(%error, "cannot read the domains: visits go by those known");
            }
        }
    }

    fn transact(&mut self, group: Vec<Job>) {
        let mut changes = Changes::default();
        let mut answers = Vec::with_capacity(group.len());
        let durable = group.iter().any(|job| job.durable);
        let result = self.try_transact(group, durable, &mut changes, &mut answers);
        if result.is_ok() {
            self.commits.fetch_add(1, Ordering::Release);
            if changes.domains {
                self.publish_domains();
            }
        }
        match &result {
            Ok(()) if changes.all => (self.on_change)(Change::All),
            Ok(()) if !changes.codes.is_empty() => (self.on_change)(Change::Codes(&changes.codes)),
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "a transaction failed"),
        }
        for answer in answers {
            answer(result.as_ref().err());
        }
    }

    fn try_transact(
        &mut self,
        group: Vec<Job>,
        durable: bool,
        changes: &mut Changes,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Error> {
        let mut lost = self.begin(durable).err();
        for job in group {
            lost = lost.or_else(|| self.execute("SAVEPOINT job").err());
            let mut work = WriteContext { connection: &self.connection, changes };
            let (standing, answer) = (job.run)(lost.is_none().then_some(&mut work));
            answers.push(answer);
            lost = lost.or_else(|| match standing {
                SavepointOutcome::Keep => self.execute("RELEASE job").err(),
                SavepointOutcome::Undo => {
                    self.execute("ROLLBACK TO job").and_then(|()| self.execute("RELEASE job")).err()
                }
                SavepointOutcome::Lost(error) => Some(error),
            });
        }
        let committed = match lost {
            Some(error) => Err(error),
            None => self.commit(changes.all),
        };
        if committed.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        committed
    }

    fn begin(&mut self, durable: bool) -> Result<(), Error> {
        // The setting cannot change within a transaction (sqlite.org/pragma.html#pragma_synchronous).
        if durable != self.synchronous {
            self.connection.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?;
            self.synchronous = durable;
        }
        self.execute("BEGIN IMMEDIATE")
    }

    fn commit(&mut self, import: bool) -> Result<(), Error> {
        let pages = if import { IMPORT_CHECKPOINT_PAGES } else { CHECKPOINT_PAGES };
        if pages != self.checkpoint {
            self.connection.pragma_update(None, "wal_autocheckpoint", pages)?;
            self.checkpoint = pages;
        }
        self.execute("COMMIT")
    }

    fn execute(&self, statement: &str) -> Result<(), Error> {
        self.connection.prepare_cached(statement)?.execute([])?;
        Ok(())
    }
}
