//! Stores users, keys and answers to repeated requests.
//!
//! - [`Store`]: the operations of a database.
//! - [`Watch`]: is told of writes; [`Alarm`]: reports that the database can no longer be used.
//! - [`Sqlite`] and [`Postgres`]: the two databases; `tests` checks both in the same way.
//! - `budget`: limits the memory of writes that wait.
//! - [`Draft`], [`Entry`]: a user as a row; `tokenize`: the words for searching; `list`: the SQL of lists.

mod alarm;
mod answer;
pub(crate) mod budget;
mod entry;
mod error;
mod idempotency;
mod last_use;
mod list;
mod model;
pub mod postgres;
mod sqlite;
mod tokenize;
mod watch;

#[cfg(test)]
mod tests;

use std::future::Future;

use service::ready::Heartbeats;

use crate::user::{Record, UserId};

pub use alarm::Alarm;
pub use entry::{Draft, Entry};
pub use error::{Error, Unusable};
pub use last_use::LastUse;
pub use model::*;
pub use postgres::Postgres;
pub use sqlite::Sqlite;
pub use watch::{Change, Watch};

/// The operations of a database. A write is durable when it returns, and every read that starts later sees it.
pub trait Store: Clone + Send + Sync + 'static {
    /// The user with an id.
    fn get(&self, id: UserId) -> impl Future<Output = Result<Option<Record>, Error>> + Send;

    /// The existing users with some ids, in no order.
    fn get_many(&self, ids: &[UserId]) -> impl Future<Output = Result<Vec<Record>, Error>> + Send;

    /// Creates users, all or none.
    fn create(
        &self,
        users: Vec<Draft>,
        record: Option<IdempotencyRecord>,
    ) -> impl Future<Output = Result<Created, Error>> + Send;

    /// Replaces a user. If a version is `expected`, the user has to be at it.
    fn replace(
        &self,
        id: UserId,
        expected: Option<i64>,
        user: Draft,
    ) -> impl Future<Output = Result<Replaced, Error>> + Send;

    /// Deletes users. If a version is `expected`, there is one id, and its user has to be at that version.
    fn delete(
        &self,
        ids: &[UserId],
        expected: Option<i64>,
    ) -> impl Future<Output = Result<Deleted, Error>> + Send;

    /// A page of users.
    fn list(&self, query: &Query) -> impl Future<Output = Result<Page, Error>> + Send;

    /// The number of users that meet a filter.
    fn count(&self, filter: &Filter) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Writes rows unchanged, except those whose id or email exists. Returns how many. For filling a database, not for
    /// clients.
    fn load(&self, entries: Vec<Entry>) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Adds an API key.
    fn add_key(&self, key: NewKey) -> impl Future<Output = Result<Key, Error>> + Send;

    /// All API keys, oldest first.
    fn list_keys(&self) -> impl Future<Output = Result<Vec<Key>, Error>> + Send;

    /// Revokes an API key; false where there is none.
    fn revoke_key(&self, id: i64) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Records that an API key was used in this second since 1970. A deleted key is ignored.
    fn key_used(&self, id: i64, second: i64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reports that something essential for this database has ended, and that no request restores it.
    fn alarm(&self) -> &Alarm;

    /// The heartbeats of the writing threads or tasks: a few per second, except during a transaction.
    fn heartbeats(&self) -> &Heartbeats;

    /// Whether the database answers.
    fn ping(&self) -> impl Future<Output = Result<(), Error>> + Send;
}
