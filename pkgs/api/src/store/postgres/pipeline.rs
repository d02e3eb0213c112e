//! Reads by id: one connection for each thread, on which what waits is asked for together.
//!
//! A pool that awaits one query on each connection spends most of its time, and PostgreSQL's, on system calls and
//! wake-ups. Here a read joins those that wait; while one question is under way the next one gathers, so that
//! under load many reads share a round trip, and without load none waits for another. An id that several wait for
//! is asked for once.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};
use uuid::Uuid;

use crate::store::Error;
use crate::thread;
use crate::user::{Record, UserId};

use super::failure::of_connection;

/// The most ids in one question.
const BATCH: usize = 128;

/// Reads that wait on a lane; more are refused with [`Error::Busy`].
const QUEUE: usize = 8_192;

/// Questions under way at once on a lane. With one, PostgreSQL would wait while answers are handed out.
const UNDER_WAY: usize = 2;

/// A read by id never does better by another plan than by the index, and planning it each time takes longer than
/// the read.
const SETTINGS: &str =
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off";

/// One by id.
const ONE: &str = "SELECT id, version, body FROM users WHERE id = $1";

/// Several by id.
const SOME: &str = "SELECT id, version, body FROM users WHERE id = ANY($1)";

type Answer = Result<Option<Record>, Error>;

/// The lanes of a database; each thread has one.
pub struct Lanes {
    lanes: Box<[Arc<Lane>]>,
    timeout: Duration,
}

/// What one thread reads by.
struct Lane {
    config: Config,
    timeout: Duration,
    queue: Mutex<Queue>,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<(UserId, oneshot::Sender<Answer>)>,
    /// Tasks that ask.
    asking: usize,
}

/// A connection with its statements prepared.
struct Connection {
    client: Client,
    one: Statement,
    some: Statement,
}

impl Lanes {
    pub fn new(config: &Config, count: NonZero<usize>, timeout: Duration) -> Self {
        let lane = || {
            let mut config = config.clone();
            config.options(SETTINGS).application_name("linerate-api read");
            Arc::new(Lane {
                config,
                timeout,
                queue: Mutex::default(),
                connection: tokio::sync::Mutex::default(),
            })
        };
        Self { lanes: (0..count.get()).map(|_| lane()).collect(), timeout }
    }

    /// The user of an id, by this thread's lane.
    pub async fn get(&self, id: UserId) -> Answer {
        let lane = &self.lanes[thread::number() % self.lanes.len()];
        let answer = lane.ask(id)?;
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(answer)) => answer,
            // The task that asked ended with its runtime.
            Ok(Err(gone)) => Err(Error::Unreachable(gone.into())),
            Err(elapsed) => Err(Error::Unreachable(elapsed.into())),
        }
    }
}

impl Lane {
    /// Joins what waits, and starts a task that asks where one is wanted.
    fn ask(self: &Arc<Self>, id: UserId) -> Result<oneshot::Receiver<Answer>, Error> {
        let (sender, receiver) = oneshot::channel();
        let mut queue = self.queue();
        if queue.waiting.len() >= QUEUE {
            return Err(Error::Busy);
        }
        queue.waiting.push((id, sender));
        // One that finds others waiting leaves it to who asks for them; should nobody, a runtime has ended.
        if queue.asking == 0 || queue.asking < UNDER_WAY && queue.waiting.len() == 1 {
            queue.asking += 1;
            drop(queue);
            let asking = Asking { lane: Arc::clone(self), counted: true };
            tokio::spawn(async move { asking.run().await });
        }
        Ok(receiver)
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, made anew where it is lost.
    async fn connection(&self) -> Result<Arc<Connection>, Error> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection.as_ref().filter(|connection| !connection.client.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        let client = connect(&self.config, self.timeout).await?;
        let prepare = async {
            let (one, some) = tokio::try_join!(client.prepare(ONE), client.prepare(SOME))?;
            Ok((one, some))
        };
        let (one, some) = in_time(self.timeout, prepare).await?;
        Ok(Arc::clone(connection.insert(Arc::new(Connection { client, one, some }))))
    }

    /// Asks for users and answers who waits for them.
    async fn fetch(&self, waiting: Vec<(UserId, oneshot::Sender<Answer>)>) {
        match self.rows(&waiting).await {
            Ok(rows) if waiting.len() == 1 => {
                let record = rows.first().map(record_of);
                waiting.into_iter().for_each(|(_, sender)| drop(sender.send(Ok(record.clone()))));
            }
            Ok(rows) => {
                let records = rows.iter().map(record_of).map(|record| (record.id, record));
                let records: HashMap<UserId, Record> = records.collect();
                for (id, sender) in waiting {
                    // Who gave up waiting misses nothing.
                    let _ = sender.send(Ok(records.get(&id).cloned()));
                }
            }
            Err(error) => waiting.into_iter().for_each(|(_, sender)| drop(sender.send(Err(error.again())))),
        }
    }

    async fn rows(&self, waiting: &[(UserId, oneshot::Sender<Answer>)]) -> Result<Vec<Row>, Error> {
        let Connection { client, one, some } = &*self.connection().await?;
        let asked = async {
            if let [(id, _)] = waiting {
                return client.query(one, &[&id.0]).await;
            }
            let ids: Vec<Uuid> = waiting.iter().map(|(id, _)| id.0).collect();
            client.query(some, &[&ids]).await
        };
        let answered = in_time(self.timeout, asked).await;
        if matches!(answered, Err(Error::Unreachable(_))) {
            // A connection that no longer answers need not be closed yet.
            *self.connection.lock().await = None;
        }
        answered
    }
}

/// A task that asks; counted while it does, even if its runtime ends it.
struct Asking {
    lane: Arc<Lane>,
    counted: bool,
}

impl Asking {
    /// Asks for what waits until nothing does.
    async fn run(mut self) {
        loop {
            // What is ready to run now may want to join.
            tokio::task::yield_now().await;
            let Some(waiting) = self.take() else { return };
            self.lane.fetch(waiting).await;
        }
    }

    /// What waits, as much as fits in a question. Where nothing does, this task no longer counts from the same
    /// moment on, so that who comes next starts another.
    fn take(&mut self) -> Option<Vec<(UserId, oneshot::Sender<Answer>)>> {
        let mut queue = self.lane.queue();
        if queue.waiting.is_empty() {
            queue.asking -= 1;
            self.counted = false;
            return None;
        }
        let count = queue.waiting.len().min(BATCH);
        Some(queue.waiting.drain(..count).collect())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.counted {
            self.lane.queue().asking -= 1;
        }
    }
}

fn record_of(row: &Row) -> Record {
    let id: Uuid = row.get(0);
    Record { id: UserId(id), version: row.get(1), body: Bytes::copy_from_slice(row.get(2)) }
}

/// A connection, served by a task on the calling runtime.
pub async fn connect(config: &Config, timeout: Duration) -> Result<Client, Error> {
    let (client, connection) = in_time(timeout, config.connect(NoTls)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

async fn in_time<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(timeout, work).await {
        Ok(done) => done.map_err(of_connection),
        Err(elapsed) => Err(Error::Unreachable(elapsed.into())),
    }
}
