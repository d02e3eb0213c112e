//! Reads by key. Each thread has one session, which sends one query for all waiting reads.
//!
//! A pool that awaits one query on each connection spends most of its time, and PostgreSQL's, on system calls and
//! wake-ups. Here, reads that arrive while a query is in flight gather for the next query. So under load many reads
//! share a round trip, and without load no read waits for another. Reads that wait for the same key share one row of
//! the result. A read with a [`Comment`] gets its own query, since the comment would be wrong for others.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::comment::{Comment, comment, commented};
use crate::connect::Connector;
use crate::error::Error;
use crate::session::{Parameter, Session};

/// The most keys in one query.
const BATCH: usize = 128;

/// The most reads that wait on a pipeline. Further ones are refused with [`Error::Busy`].
const QUEUE: usize = 8_192;

/// How many queries are in flight at once on a pipeline. With only one, PostgreSQL would wait while results are handed
/// out.
const UNDER_WAY: usize = 2;

/// No plan for a read by key is better than the index, and planning takes longer than the read itself.
const SETTINGS: &str =
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off";

/// The queries for rows by key.
pub struct KeyQuery<K, V> {
    /// Selects the row of one key, `$1`.
    pub one: &'static str,
    /// Selects the rows of several keys, `ANY($1)`.
    pub several: &'static str,
    /// The type of a key.
    pub key: Type,
    /// The type of an array of keys.
    pub keys: Type,
    /// Reads a row.
    pub read: fn(&Row) -> Result<(K, V), tokio_postgres::Error>,
}

type Answer<V> = Result<Option<V>, Arc<Error>>;

/// A reader that waits for a key.
struct Waiting<K, V> {
    key: K,
    sender: oneshot::Sender<Answer<V>>,
    /// The comment for its statement.
    comment: Option<Comment>,
}

/// The pipelines of a database; each thread has one.
pub struct Pipelines<K, V> {
    pipelines: Box<[Arc<Pipeline<K, V>>]>,
    timeout: Duration,
}

/// One thread's pipeline.
struct Pipeline<K, V> {
    query: Arc<KeyQuery<K, V>>,
    connector: Connector,
    timeout: Duration,
    queue: Mutex<Queue<K, V>>,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
}

struct Queue<K, V> {
    waiting: VecDeque<Waiting<K, V>>,
    /// How many tasks send queries.
    asking: usize,
}

impl<K, V> Pipelines<K, V>
where
    K: ToSql + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Makes this many pipelines, with sessions named `application`, which are connected when they are first used. A
    /// read takes at most `timeout`.
    pub fn new(
        connector: &Connector,
        application: &str,
        count: NonZero<usize>,
        timeout: Duration,
        query: KeyQuery<K, V>,
    ) -> Self {
        let (connector, query) = (connector.derive(application, SETTINGS), Arc::new(query));
        let pipeline = || {
            Arc::new(Pipeline {
                query: Arc::clone(&query),
                connector: connector.clone(),
                timeout,
                queue: Mutex::new(Queue { waiting: VecDeque::new(), asking: 0 }),
                session: tokio::sync::Mutex::default(),
            })
        };
        Self { pipelines: (0..count.get()).map(|_| pipeline()).collect(), timeout }
    }

    /// The value of a key, through this thread's pipeline.
    ///
    /// # Errors
    /// When the database doesn't answer, or too many reads wait.
    pub async fn get(&self, key: K) -> Answer<V> {
        let pipeline = &self.pipelines[thread_number() % self.pipelines.len()];
        let answer = pipeline.ask(key)?;
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(answer)) => answer,
            // The task that sent the query ended with its runtime.
            Ok(Err(_)) => Err(Arc::new(Error::Ended)),
            Err(_) => Err(Arc::new(Error::Timeout(self.timeout))),
        }
    }
}

impl<K, V> Pipeline<K, V>
where
    K: ToSql + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Joins the queue, and starts a task that sends queries if one is needed.
    fn ask(self: &Arc<Self>, key: K) -> Result<oneshot::Receiver<Answer<V>>, Arc<Error>> {
        let (sender, receiver) = oneshot::channel();
        let mut queue = self.queue();
        if queue.waiting.len() >= QUEUE {
            return Err(Arc::new(Error::Busy));
        }
        queue.waiting.push_back(Waiting { key, sender, comment: comment() });
        // If other reads are waiting, the task that takes them takes this one too. If no task takes any, its runtime
        // has ended.
        if queue.asking == 0 || queue.asking < UNDER_WAY && queue.waiting.len() == 1 {
            queue.asking += 1;
            drop(queue);
            let asking = Asking { pipeline: Arc::clone(self), counted: true };
            tokio::spawn(async move { asking.run().await });
        }
        Ok(receiver)
    }

    /// Queries these keys and sends the results to the waiting reads.
    async fn fetch(&self, waiting: Vec<Waiting<K, V>>) {
        match self.rows(&waiting).await {
            Ok(mut rows) if waiting.len() == 1 => {
                let value = rows.pop().map(|(_, value)| value);
                waiting.into_iter().for_each(|waits| drop(waits.sender.send(Ok(value.clone()))));
            }
            Ok(rows) => {
                let values: HashMap<K, V> = rows.into_iter().collect();
                for Waiting { key, sender, .. } in waiting {
                    // A caller that has given up waiting needs no result.
                    let _ = sender.send(Ok(values.get(&key).cloned()));
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                waiting.into_iter().for_each(|waits| drop(waits.sender.send(Err(Arc::clone(&error)))));
            }
        }
    }

    async fn rows(&self, waiting: &[Waiting<K, V>]) -> Result<Vec<(K, V)>, Error> {
        let session = in_time(self.timeout, self.session()).await?;
        let query = &self.query;
        let asked = async {
            let rows = if let [Waiting { key, comment, .. }] = waiting {
                let parameters: [Parameter<'_>; 1] = [(key, query.key.clone())];
                commented(comment.clone(), session.query(query.one, &parameters)).await?
            } else {
                let keys: Vec<&K> = waiting.iter().map(|waits| &waits.key).collect();
                session.query(query.several, &[(&keys, query.keys.clone())]).await?
            };
            Ok(rows.iter().map(query.read).collect::<Result<Vec<_>, _>>()?)
        };
        let answered = in_time(self.timeout, asked).await;
        if answered.as_ref().is_err_and(Error::ends_session) {
            // A connection that no longer answers may still be open.
            session.spoil();
        }
        answered
    }

    /// The session, connected again if it is lost.
    async fn session(&self) -> Result<Arc<Session>, Error> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| self.connector.is_current(session)) {
            return Ok(Arc::clone(session));
        }
        // The lost session is dropped before connecting, so that it isn't used again even if that fails.
        *session = None;
        Ok(Arc::clone(session.insert(self.connector.connect().await?)))
    }
}

impl<K, V> Pipeline<K, V> {
    fn queue(&self) -> std::sync::MutexGuard<'_, Queue<K, V>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that sends queries. It is counted until it is dropped, even if its runtime ends it.
struct Asking<K, V> {
    pipeline: Arc<Pipeline<K, V>>,
    counted: bool,
}

impl<K, V> Asking<K, V>
where
    K: ToSql + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Sends queries until no read is waiting.
    async fn run(mut self) {
        loop {
            // Let other tasks run first, since their reads may join.
            tokio::task::yield_now().await;
            let Some(waiting) = self.take() else { return };
            self.pipeline.fetch(waiting).await;
        }
    }

    /// Takes as many waiting reads as fit in a query. If there are none, this task stops being counted under the same
    /// lock, so that the next read starts another.
    fn take(&mut self) -> Option<Vec<Waiting<K, V>>> {
        let mut queue = self.pipeline.queue();
        if queue.waiting.is_empty() {
            queue.asking -= 1;
            self.counted = false;
            return None;
        }
        let alone = queue.waiting.iter().take(BATCH).position(|waits| waits.comment.is_some());
        let count = alone.unwrap_or(BATCH).clamp(1, queue.waiting.len());
        Some(queue.waiting.drain(..count).collect())
    }
}

impl<K, V> Drop for Asking<K, V> {
    fn drop(&mut self) {
        if self.counted {
            self.pipeline.queue().asking -= 1;
        }
    }
}

async fn in_time<T>(timeout: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(timeout, work).await.unwrap_or(Err(Error::Timeout(timeout)))
}

/// The calling thread's number. Threads count up from 0 in the order of their first call.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}
