//! Writes of many callers in one transaction: they share round trips and the wait for the disk.
//!
//! While one transaction is committed, the next one gathers. A write is acknowledged when its transaction has been
//! committed. Where one of them fails, all are taken back and done again one by one, so that nobody fails for another's
//! fault.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::{ToSql, Type};

use crate::error::{Error, Kind};
use crate::pool::Pool;
use crate::session::{Parameter, Session};

/// Writes in one transaction.
const BATCH: usize = 128;

/// Writes that wait; more are refused with [`Error::Busy`].
const QUEUE: usize = 8_192;

type Values = Vec<(Box<dyn ToSql + Sync + Send>, Type)>;
type Answer = Result<u64, Arc<Error>>;

struct Write {
    sql: &'static str,
    values: Values,
    done: oneshot::Sender<Answer>,
}

/// Commits what waits together; clones share it. Its task ends with the last of them.
#[derive(Clone)]
pub struct GroupCommit {
    writes: mpsc::Sender<Write>,
    timeout: Duration,
}

impl GroupCommit {
    /// One that takes a session of `pool` for as long as there is something to write. It lives on the calling task's
    /// runtime; a write takes at most `timeout`.
    pub fn start(pool: Pool, timeout: Duration) -> Self {
        let (writes, mut waiting) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(BATCH);
            while waiting.recv_many(&mut batch, BATCH).await > 0 {
                commit(&pool, timeout, std::mem::take(&mut batch)).await;
            }
        });
        Self { writes, timeout }
    }

    /// How many rows a statement has changed, once that lasts.
    ///
    /// # Errors
    /// When it is refused; where the database was away, whether it was done is not known.
    pub async fn execute(&self, sql: &'static str, values: Values) -> Answer {
        let (done, answer) = oneshot::channel();
        self.writes.try_send(Write { sql, values, done }).map_err(|_| Arc::new(Error::Busy))?;
        // What waits before it has its time too.
        match tokio::time::timeout(self.timeout * 2, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Arc::new(Error::Ended)),
            Err(_) => Err(Arc::new(Error::Timeout(self.timeout * 2))),
        }
    }
}

async fn commit(pool: &Pool, timeout: Duration, batch: Vec<Write>) {
    let together = async {
        let session = pool.get().await?;
        let transaction = session.begin().await?;
        // All at once: the answers come in their order.
        let answers = join_all(batch.iter().map(|write| run(&transaction, write))).await;
        let counts: Result<Vec<u64>, Error> = answers.into_iter().collect();
        match counts {
            Ok(counts) => transaction.commit().await.map(|()| counts),
            Err(error) => {
                transaction.rollback().await?;
                Err(error)
            }
        }
    };
    match tokio::time::timeout(timeout, together).await.unwrap_or(Err(Error::Timeout(timeout))) {
        Ok(counts) => {
            // Who gave up waiting misses nothing.
            batch.into_iter().zip(counts).for_each(|(write, count)| drop(write.done.send(Ok(count))));
        }
        // Whether it was committed is not known: doing it again could do it twice.
        Err(error) if batch.len() == 1 || error.kind() == Kind::Unreachable => {
            let error = Arc::new(error);
            batch.into_iter().for_each(|write| drop(write.done.send(Err(Arc::clone(&error)))));
        }
        Err(_) => {
            for write in batch {
                let alone = async { run(&*pool.get().await?, &write).await };
                let answer =
                    tokio::time::timeout(timeout, alone).await.unwrap_or(Err(Error::Timeout(timeout)));
                let _ = write.done.send(answer.map_err(Arc::new));
            }
        }
    }
}

async fn run(session: &Session, write: &Write) -> Result<u64, Error> {
    let values: Vec<Parameter<'_>> =
        write.values.iter().map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone())).collect();
    session.execute(write.sql, &values).await
}
