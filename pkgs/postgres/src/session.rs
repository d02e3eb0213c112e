//! A connection, its prepared statements, and whether it can still be used.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Notification, Row, Statement};

use crate::comment::comment;
use crate::error::Error;

/// A statement's value, with its type. With types, a statement takes one round trip even if nothing may be prepared.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// How many prepared statements a session keeps. When there are more, it forgets all of them and starts again.
const STATEMENTS: usize = 256;

/// A connection to a server.
pub struct Session {
    client: Client,
    statements: Mutex<HashMap<Box<str>, Statement>>,
    /// Whether a pooler is in between, which may use another connection for each transaction.
    pooled: bool,
    generation: u64,
    server: Box<str>,
    under_way: AtomicUsize,
    /// Whether it must not be used again: a query was abandoned before its answer, or an error ended the session.
    broken: AtomicBool,
    notifications: Mutex<Option<mpsc::Receiver<Notification>>>,
}

impl Session {
    pub(crate) fn new(
        client: Client,
        pooled: bool,
        generation: u64,
        server: String,
        notifications: mpsc::Receiver<Notification>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            statements: Mutex::default(),
            pooled,
            generation,
            server: server.into(),
            under_way: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            notifications: Mutex::new(Some(notifications)),
        })
    }

    /// Whether a pooler is in between. Then nothing lasts from one transaction to the next.
    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// The name of the host that it is connected to.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The connection itself, for everything without a method here.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The connector's count of server changes when this was connected.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether it can be used for another query.
    pub(crate) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.broken.load(Ordering::Acquire)
    }

    /// Whether it is idle.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    pub(crate) fn spoil(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// The session's notifications. They can be taken once.
    pub(crate) fn notifications(&self) -> Option<mpsc::Receiver<Notification>> {
        self.notifications.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The rows of a statement that is kept prepared, unless it has a [`Comment`](crate::Comment).
    ///
    /// # Errors
    /// When the server refuses it, or the connection is lost.
    pub async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        if comment().is_some() {
            return self.query_once(sql, parameters).await;
        }
        self.whole(async {
            match self.prepared(sql, parameters).await? {
                Some(statement) => Ok(self.client.query(&statement, &values(parameters)).await?),
                None => Ok(self.client.query_typed(sql, parameters).await?),
            }
        })
        .await
    }

    /// The rows of a statement whose text differs each time, so that it isn't prepared.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn query_once(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let sql = with_comment(sql);
        self.whole(async { Ok(self.client.query_typed(&sql, parameters).await?) }).await
    }

    /// How many rows a statement changes.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn execute(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64, Error> {
        if comment().is_some() {
            return self.execute_once(sql, parameters).await;
        }
        self.whole(async {
            match self.prepared(sql, parameters).await? {
                Some(statement) => Ok(self.client.execute(&statement, &values(parameters)).await?),
                None => Ok(self.client.execute_typed(sql, parameters).await?),
            }
        })
        .await
    }

    /// How many rows a statement changes whose text differs each time.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn execute_once(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64, Error> {
        let sql = with_comment(sql);
        self.whole(async { Ok(self.client.execute_typed(&sql, parameters).await?) }).await
    }

    /// Runs statements without parameters, in one round trip; several are one transaction.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn batch(&self, sql: &str) -> Result<(), Error> {
        self.whole(async { Ok(self.client.batch_execute(sql).await?) }).await
    }

    /// Begins a transaction. Nobody else may use the session until it ends. If it is abandoned, the session ends too.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn begin(&self) -> Result<Transaction<'_>, Error> {
        let transaction = Transaction { session: self, over: false };
        self.batch("BEGIN").await?;
        Ok(transaction)
    }

    async fn prepared(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Statement>, Error> {
        if self.pooled {
            return Ok(None);
        }
        let known = self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let types: Vec<Type> = parameters.iter().map(|(_, of)| of.clone()).collect();
        let statement = self.client.prepare_typed(sql, &types).await?;
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if statements.len() >= STATEMENTS {
            statements.clear();
        }
        statements.insert(sql.into(), statement.clone());
        Ok(Some(statement))
    }

    /// Runs work to its end, or records that it was abandoned: the next query would have to wait for it.
    pub(crate) async fn whole<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        struct UnderWay<'a>(&'a Session, bool);
        impl Drop for UnderWay<'_> {
            fn drop(&mut self) {
                self.0.under_way.fetch_sub(1, Ordering::AcqRel);
                if !self.1 {
                    self.0.spoil();
                }
            }
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let mut under_way = UnderWay(self, false);
        let done = work.await;
        under_way.1 = !done.as_ref().err().is_some_and(Error::ends_session);
        done
    }
}

/// A statement with the calling task's comment.
fn with_comment(sql: &str) -> Cow<'_, str> {
    comment().map_or(Cow::Borrowed(sql), |comment| Cow::Owned(comment.behind(sql)))
}

fn values<'a>(parameters: &[Parameter<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|(value, _)| *value).collect()
}

/// A running transaction. Dropping it ends its session, which rolls it back.
pub struct Transaction<'a> {
    session: &'a Session,
    over: bool,
}

impl Transaction<'_> {
    /// Commits it.
    ///
    /// # Errors
    /// As [`Session::query`]. If the connection was lost, it is unknown whether the transaction is committed.
    pub async fn commit(mut self) -> Result<(), Error> {
        self.session.batch("COMMIT").await?;
        self.over = true;
        Ok(())
    }

    /// Rolls it back.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub async fn rollback(mut self) -> Result<(), Error> {
        self.session.batch("ROLLBACK").await?;
        self.over = true;
        Ok(())
    }
}

impl std::ops::Deref for Transaction<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.over {
            // Ending the session closes the connection, and the server then rolls the transaction back.
            self.session.spoil();
        }
    }
}
