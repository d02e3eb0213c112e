//! Where users, keys and answers to repeated requests are kept.
//!
//! [`Store`] is what a database can do; SQLite and PostgreSQL each do it.

use std::future::Future;

use crate::user::{Document, Record, UserId};

/// What a database does for this service. Every write is durable when it returns.
pub trait Store: Clone + Send + Sync + 'static {
    /// The user of an id.
    fn get(&self, id: UserId) -> impl Future<Output = Result<Option<Record>, Error>> + Send;

    /// The users of some ids, those that there are, in no order.
    fn get_many(&self, ids: &[UserId]) -> impl Future<Output = Result<Vec<Record>, Error>> + Send;

    /// Creates users, all or none.
    fn create(
        &self,
        users: Vec<Document>,
        claim: Option<Claim>,
    ) -> impl Future<Output = Result<Created, Error>> + Send;

    /// Replaces a user, provided it is at the `expected` version, where one is given.
    fn replace(
        &self,
        id: UserId,
        expected: Option<i64>,
        user: Document,
    ) -> impl Future<Output = Result<Replaced, Error>> + Send;

    /// Whether the database answers.
    fn ping(&self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A request that is made once, however often it is sent: its answer is kept in the transaction of its write.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Whose: the API key, or nobody.
    pub owner: Option<i64>,
    /// The client's `Idempotency-Key`.
    pub key: String,
    /// SHA-256 of method, path and body: a key means one request.
    pub digest: [u8; 32],
}

/// What came of creating.
#[derive(Clone, Debug)]
pub enum Created {
    /// Done, in the order asked for.
    Done(Vec<Record>),
    /// Done before by the same request; as it was then.
    Before(Vec<Record>),
    /// The key was used for another request.
    KeyReused,
    /// Somebody has the email of the document at this index.
    EmailTaken(usize),
}

/// What came of replacing.
#[derive(Clone, Debug)]
pub enum Replaced {
    /// Done.
    Done(Record),
    /// There is no such user.
    Missing,
    /// The user is at this version, which is not the expected one.
    Changed(i64),
    /// Another user has the email.
    EmailTaken,
}

/// Why the database did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All connections are busy, and were for as long as a request waits for one.
    #[error("the database is busy")]
    Busy,
    /// It cannot be reached.
    #[error("the database cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Anything else.
    #[error("the database failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}
