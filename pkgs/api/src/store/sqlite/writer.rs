//! The writer thread: what waits becomes one transaction, and is answered after its commit.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::store::{Change, Error, Watch};
use crate::user::UserId;

/// The most writes in one transaction. More would let the first wait too long for its answer.
const GROUP: usize = 256;

/// Writes that wait for the writer; more are refused with [`Error::Busy`].
const QUEUE: usize = 4_096;

/// How often an idle writer looks for commits by other processes.
const FOREIGN_POLL: Duration = Duration::from_millis(100);

/// What a write has at hand: the connection, within a transaction, and a list of what it changes.
pub struct Work<'w> {
    pub connection: &'w Connection,
    changes: &'w mut Changes,
}

#[derive(Default)]
struct Changes {
    users: Vec<UserId>,
    keys: bool,
}

impl Work<'_> {
    /// The user is another now.
    pub fn changed(&mut self, id: UserId) {
        self.changes.users.push(id);
    }

    /// API keys are others now.
    pub fn keys_changed(&mut self) {
        self.changes.keys = true;
    }
}

/// Answers a write, once it is known whether its transaction was committed.
type Answer = Box<dyn FnOnce(bool) + Send>;

/// Does a write, unless the transaction is lost already, and prepares its answer; false where nothing of it shall
/// stay.
type Job = Box<dyn FnOnce(Option<&mut Work<'_>>) -> (bool, Answer) + Send>;

/// The writer, and the queue to it.
pub struct Writer {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn start(connection: Connection, watch: Arc<dyn Watch>) -> Self {
        let (queue, jobs) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || run(&connection, &jobs, &*watch))
            .expect("the system can start a thread");
        Self { queue: Some(queue), thread: Some(thread) }
    }

    /// Hands a write over and waits for its commit. A write that fails leaves nothing behind.
    pub async fn submit<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |work| {
            let written = work.map_or_else(|| Err(lost()), write);
            let keep = written.is_ok();
            let answer: Answer = Box::new(move |committed| {
                // Where nobody waits any more, nobody needs to know.
                let _ = sender.send(if committed || !keep { written } else { Err(lost()) });
            });
            (keep, answer)
        });
        let queue = self.queue.as_ref().ok_or_else(lost)?;
        queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Error::Busy,
            TrySendError::Disconnected(_) => lost(),
        })?;
        receiver.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.take();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer ended in a panic");
        }
    }
}

fn lost() -> Error {
    Error::failed("the transaction could not be committed")
}

fn run(connection: &Connection, jobs: &Receiver<Job>, watch: &dyn Watch) {
    let mut version = None;
    loop {
        match jobs.recv_timeout(FOREIGN_POLL) {
            Ok(first) => {
                transact(connection, std::iter::once(first).chain(jobs.try_iter().take(GROUP - 1)), watch)
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        // A commit by another connection changes this; one of our own does not.
        let now = connection.prepare_cached("PRAGMA data_version");
        let now: Option<i64> = now.and_then(|mut statement| statement.query_row([], |row| row.get(0))).ok();
        if now != version && version.is_some() {
            watch.changed(Change::All);
        }
        version = now;
    }
    // Neither is needed to lose nothing; both make the next start quick.
    if let Err(error) = connection.execute_batch("PRAGMA optimize; PRAGMA wal_checkpoint(TRUNCATE);") {
        tracing::warn!(%error, "cannot tidy the database up");
    }
}

fn transact(connection: &Connection, group: impl Iterator<Item = Job>, watch: &dyn Watch) {
    let mut changes = Changes::default();
    let mut answers = Vec::new();
    let mut outcome = execute(connection, "BEGIN IMMEDIATE");
    for job in group {
        outcome = outcome.and_then(|()| execute(connection, "SAVEPOINT job"));
        let mut work = Work { connection, changes: &mut changes };
        let (keep, answer) = job(outcome.is_ok().then_some(&mut work));
        answers.push(answer);
        // Some errors end the transaction on the spot (sqlite.org/lang_transaction.html, section 3): then there is
        // no savepoint any more, and this fails.
        outcome = outcome.and_then(|()| {
            if !keep {
                execute(connection, "ROLLBACK TO job")?;
            }
            execute(connection, "RELEASE job")
        });
    }
    let outcome = outcome.and_then(|()| execute(connection, "COMMIT"));
    if let Err(error) = &outcome {
        tracing::error!(%error, "a transaction failed");
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
    } else {
        if changes.keys {
            watch.changed(Change::Keys);
        }
        if !changes.users.is_empty() {
            watch.changed(Change::Users(&changes.users));
        }
    }
    answers.into_iter().for_each(|answer| answer(outcome.is_ok()));
}

fn execute(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}
