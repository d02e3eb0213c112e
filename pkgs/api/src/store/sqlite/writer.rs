//! The writer thread: all waiting writes become one transaction, and are answered after its commit.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use service::panics;
use service::ready::Heartbeats;
use tokio::sync::oneshot;

use crate::store::budget::{WriteBudget, WriteReservation};
use crate::store::{Alarm, Change, Error, Watch};
use crate::user::UserId;

/// The most writes in one transaction. With more of them, the first one would wait too long for its answer.
const GROUP: usize = 256;

/// How many writes may wait for the writer. Further ones fail with [`Error::Busy`]. [`Writer::reserve`] limits their
/// memory.
const QUEUE: usize = 4_096;

/// How often an idle writer checks for commits by other processes.
const FOREIGN_POLL: Duration = Duration::from_millis(100);

/// The context of a write: the connection within a transaction, and a list of changes.
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
    /// Records that the user has changed.
    pub fn changed(&mut self, id: UserId) {
        self.changes.users.push(id);
    }

    /// Records that API keys have changed.
    pub fn keys_changed(&mut self) {
        self.changes.keys = true;
    }
}

/// Answers a write. It gets none if the transaction was committed, otherwise the reason why it was not.
type Answer = Box<dyn FnOnce(Option<Error>) + Send>;

/// Does a write, unless the transaction has already failed, and prepares its answer. Returns false if the write has to
/// be rolled back.
type Job = Box<dyn FnOnce(Option<&mut Work<'_>>) -> (bool, Answer) + Send>;

/// The writer, and its queue.
pub struct Writer {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    writes: Arc<WriteBudget>,
    alarm: Alarm,
    beats: Heartbeats,
}

impl Writer {
    pub fn start(connection: Connection, watch: Arc<dyn Watch>, writes: Arc<WriteBudget>) -> Self {
        let (queue, jobs) = sync_channel(QUEUE);
        let alarm = Alarm::default();
        let armed = alarm.arm();
        let beats = Heartbeats::new(1);
        let beating = beats.clone();
        // Taken before anybody can read, so that a commit from now on is noticed.
        let version = data_version(&connection);
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || {
                // If this thread ends by a panic, nothing is written any more.
                let armed = armed;
                run(&connection, version, &jobs, &*watch, &beating);
                armed.disarm();
            })
            .expect("the system can start a thread");
        Self { queue: Some(queue), thread: Some(thread), writes, alarm, beats }
    }

    /// Raised when the thread ends unexpectedly.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// The thread's heartbeats, between transactions.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.beats
    }

    /// Counts the memory of a write, in bytes, for [`submit_holding`](Self::submit_holding).
    ///
    /// # Errors
    /// [`Error::Busy`] if the writes that wait hold too much.
    pub fn reserve(&self, bytes: u64) -> Result<WriteReservation, Error> {
        self.writes.reserve(bytes)
    }

    /// Submits a small write and waits for its commit. A failed write leaves nothing behind.
    pub async fn submit<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.submit_holding(None, write).await
    }

    /// Like [`submit`](Self::submit), for a write that takes the reserved memory until it is answered, whether or not
    /// its client still waits for that.
    pub async fn submit_holding<T: Send + 'static>(
        &self,
        reserved: Option<WriteReservation>,
        write: impl FnOnce(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |work| {
            let written = work.map(write);
            let keep = matches!(written, Some(Ok(_)));
            let answer: Answer = Box::new(move |failure| {
                let answer = match (written, failure) {
                    (Some(Err(error)), _) | (_, Some(error)) => Err(error),
                    (Some(Ok(done)), None) => Ok(done),
                    (None, None) => Err(lost()),
                };
                // If nobody waits any more, nobody needs the answer.
                let _ = sender.send(answer);
                drop(reserved);
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

/// A number that a commit by another connection changes. Our own commits do not. None if it cannot be read.
fn data_version(connection: &Connection) -> Option<i64> {
    let statement = connection.prepare_cached("PRAGMA data_version");
    statement.and_then(|mut statement| statement.query_row([], |row| row.get(0))).ok()
}

fn run(
    connection: &Connection,
    mut version: Option<i64>,
    jobs: &Receiver<Job>,
    watch: &dyn Watch,
    beats: &Heartbeats,
) {
    loop {
        beats.beat(0);
        match jobs.recv_timeout(FOREIGN_POLL) {
            Ok(first) => {
                transact(connection, std::iter::once(first).chain(jobs.try_iter().take(GROUP - 1)), watch);
                #[cfg(test)]
                crate::faults::strike_writer();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = data_version(connection);
        if now.is_none() || now != version {
            watch.changed(Change::All);
        }
        version = now;
    }
    // Durability needs none of it. It makes the next start quick. A checkpoint holds the lock for writing, so it does
    // not wait for readers, which may stay for minutes: other processes could not write meanwhile.
    let tidied = connection.execute_batch("PRAGMA optimize").and_then(|()| {
        connection.busy_timeout(Duration::ZERO)?;
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
    });
    if let Err(error) = tidied {
        tracing::warn!(%error, "cannot tidy the database up");
    }
    beats.done(0);
}

fn transact(connection: &Connection, group: impl Iterator<Item = Job>, watch: &dyn Watch) {
    let mut changes = Changes::default();
    let mut answers = Vec::new();
    let mut outcome = execute(connection, "BEGIN IMMEDIATE");
    for job in group {
        outcome = outcome.and_then(|()| execute(connection, "SAVEPOINT job"));
        let mut work = Work { connection, changes: &mut changes };
        // A panic fails only its own request, whose answer is dropped. The request's changes are rolled back.
        let done = panics::catch(|| job(outcome.is_ok().then_some(&mut work)));
        let keep = match done {
            Ok((keep, answer)) => {
                answers.push(answer);
                keep
            }
            Err(panic) => {
                panic.log("job", "a write");
                false
            }
        };
        // Some errors end the transaction at once (sqlite.org/lang_transaction.html, section 3). Then the savepoint is
        // gone, and this statement fails.
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
    let failure = outcome.err().map(Error::from);
    answers.into_iter().for_each(|answer| answer(failure.as_ref().map(Error::again)));
}

fn execute(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::budget::WRITE_BYTES;

    fn writer(watch: Arc<dyn Watch>) -> (tempfile::TempDir, Writer) {
        let directory = tempfile::tempdir().expect("a directory");
        let connection = super::super::connection::writer(&directory.path().join("x.db")).expect("it opens");
        connection.execute_batch("CREATE TABLE written (number)").expect("it is made");
        (directory, Writer::start(connection, watch, WriteBudget::new(WRITE_BYTES)))
    }

    fn insert(work: &mut Work<'_>, number: i64) -> Result<usize, Error> {
        Ok(work.connection.execute("INSERT INTO written VALUES (?1)", [number])?)
    }

    #[tokio::test]
    async fn a_write_that_panics_costs_itself_alone() {
        let (_directory, writer) = writer(Arc::new(()));
        let panicking = writer.submit(|work| -> Result<(), Error> {
            insert(work, 2)?;
            panic!("on purpose")
        });
        // Whether this is one transaction or three, the other writes are kept and this one is not.
        let (first, second, third) = tokio::join!(
            writer.submit(|work| insert(work, 1)),
            panicking,
            writer.submit(|work| insert(work, 3))
        );
        assert!(first.is_ok() && second.is_err() && third.is_ok(), "{first:?} {second:?} {third:?}");
        let sum = "SELECT sum(number) FROM written";
        let sum =
            writer.submit(move |work| Ok(work.connection.query_one(sum, [], |row| row.get::<_, i64>(0))?));
        assert_eq!(sum.await.expect("it is read"), 4);
        assert!(!writer.alarm().is_raised());
    }

    #[tokio::test]
    async fn writes_whose_clients_have_left_are_counted_until_they_are_committed() {
        let (_directory, writer) = writer(Arc::new(()));
        let (release, released) = std::sync::mpsc::channel::<()>();
        // Polls a write once, so that it is submitted, and leaves.
        let leave = async |bytes: u64| -> Result<(), Error> {
            let reserved = writer.reserve(bytes)?;
            let write = writer.submit_holding(Some(reserved), |work| insert(work, 1));
            drop(tokio::time::timeout(Duration::ZERO, write).await);
            Ok(())
        };
        let held_up = writer.submit(move |_| Ok(released.recv().is_ok()));
        drop(tokio::time::timeout(Duration::ZERO, held_up).await);
        for _ in 0..2 {
            assert!(leave(WRITE_BYTES / 2).await.is_ok());
        }
        assert!(matches!(leave(1).await, Err(Error::Busy)));
        release.send(()).expect("the writer waits for it");
        // Earlier writes are answered first.
        let count = "SELECT count(*) FROM written";
        let count = writer
            .submit(move |work| Ok(work.connection.query_one(count, [], |row| row.get::<_, i64>(0))?));
        assert_eq!(count.await.expect("it is read"), 2);
        assert!(leave(1).await.is_ok());
    }

    /// Panics when told of a write.
    struct Panicking;

    impl Watch for Panicking {
        fn changed(&self, _: Change<'_>) {
            panic!("on purpose")
        }

        fn heard_all_before(&self, _: std::time::Instant) {}

        fn away(&self) {}
    }

    #[tokio::test]
    async fn a_writer_that_ends_is_noticed_and_nobody_waits_for_it() {
        let (_directory, writer) = writer(Arc::new(Panicking));
        let write = || {
            writer.submit(|work| {
                work.keys_changed();
                Ok(())
            })
        };
        assert!(write().await.is_err());
        writer.alarm().raised().await;
        assert!(write().await.is_err());
    }

    /// Sends on whether everything may have changed.
    struct Telling(std::sync::mpsc::Sender<bool>);

    impl Watch for Telling {
        fn changed(&self, change: Change<'_>) {
            let _ = self.0.send(matches!(change, Change::All));
        }

        fn heard_all_before(&self, _: std::time::Instant) {}

        fn away(&self) {}
    }

    #[test]
    fn another_connections_commit_is_noticed_from_the_start() {
        let (sender, told) = std::sync::mpsc::channel();
        let (directory, _writer) = writer(Arc::new(Telling(sender)));
        let other = Connection::open(directory.path().join("x.db")).expect("it opens");
        other.execute("INSERT INTO written VALUES (1)", []).expect("nobody else writes");
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    #[tokio::test]
    async fn without_space_a_write_says_so() {
        let (_directory, writer) = writer(Arc::new(()));
        // The lowest possible limit: the existing pages.
        let limit = "PRAGMA max_page_count = 1";
        let limit = writer
            .submit(move |work| Ok(work.connection.query_one(limit, [], |row| row.get::<_, i64>(0))?));
        limit.await.expect("it is set");
        let large = "INSERT INTO written VALUES (zeroblob(100000))";
        let written = writer.submit(move |work| Ok(work.connection.execute(large, [])?)).await;
        assert!(matches!(written, Err(Error::Full)), "{written:?}");
    }

    #[test]
    fn ending_waits_for_nobody_who_reads() {
        let (directory, writer) = writer(Arc::new(()));
        let reader = Connection::open(directory.path().join("x.db")).expect("it opens");
        reader.execute_batch("BEGIN; SELECT count(*) FROM written;").expect("it is read");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(writer.submit(|work| insert(work, 1))).expect("it is written");
        let begun = std::time::Instant::now();
        drop(writer);
        assert!(begun.elapsed() < super::super::connection::BUSY_TIMEOUT, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_commit_is_on_the_disk_when_it_returns() {
        let (_directory, writer) = writer(Arc::new(()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let pragma = |name: &'static str| {
            let read = writer.submit(move |work| {
                Ok(work
                    .connection
                    .pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))?)
            });
            runtime.block_on(read).expect("it is read")
        };
        // FULL or EXTRA; the log is synced at each commit, not only at a checkpoint as with NORMAL.
        assert!(matches!(pragma("synchronous"), rusqlite::types::Value::Integer(2 | 3)));
        assert_eq!(pragma("journal_mode"), rusqlite::types::Value::Text("wal".into()));
    }
}
