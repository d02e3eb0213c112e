//! Where users, keys and answers to repeated requests are kept.
//!
//! - [`Store`]: what a database does for this service.
//! - [`Watch`]: who is told of writes; [`Alarm`]: who is told that there are none any more.
//! - [`Sqlite`] and [`Postgres`]: each does it; `tests` holds both to the same.
//! - [`Draft`], [`Entry`]: a user as a row; `tokenize`: the words a search finds it by; `list`: the SQL of lists.

mod alarm;
mod answer;
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

/// What a database does for this service. A write is durable when it returns, and is seen by every read that
/// begins later.
pub trait Store: Clone + Send + Sync + 'static {
    /// The user of an id.
    fn get(&self, id: UserId) -> impl Future<Output = Result<Option<Record>, Error>> + Send;

    /// The users of some ids, those that there are, in no order.
    fn get_many(&self, ids: &[UserId]) -> impl Future<Output = Result<Vec<Record>, Error>> + Send;

    /// Creates users, all or none.
    fn create(
        &self,
        users: Vec<Draft>,
        record: Option<IdempotencyRecord>,
    ) -> impl Future<Output = Result<Created, Error>> + Send;

    /// Replaces a user, provided it is at the `expected` version, where one is given.
    fn replace(
        &self,
        id: UserId,
        expected: Option<i64>,
        user: Draft,
    ) -> impl Future<Output = Result<Replaced, Error>> + Send;

    /// Deletes users; where a version is `expected`, provided that the user (there is one) is at it.
    fn delete(
        &self,
        ids: &[UserId],
        expected: Option<i64>,
    ) -> impl Future<Output = Result<Deleted, Error>> + Send;

    /// A page of users.
    fn list(&self, query: &Query) -> impl Future<Output = Result<Page, Error>> + Send;

    /// How many users meet a filter.
    fn count(&self, filter: &Filter) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Writes rows as they are, but for those whose id or email is there; answers how many. For filling a
    /// database, not for clients.
    fn load(&self, entries: Vec<Entry>) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Adds an API key.
    fn add_key(&self, key: NewKey) -> impl Future<Output = Result<Key, Error>> + Send;

    /// All API keys, oldest first.
    fn list_keys(&self) -> impl Future<Output = Result<Vec<Key>, Error>> + Send;

    /// Revokes an API key; false where there is none.
    fn revoke_key(&self, id: i64) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Notes that an API key was used in this second since 1970. One that is gone is none.
    fn key_used(&self, id: i64, second: i64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Tells when something has ended that this database cannot be used without, which no request brings back.
    fn alarm(&self) -> &Alarm;

    /// Shows that what writes goes on. It beats a few times a second, but for as long as one transaction takes.
    fn heartbeats(&self) -> &Heartbeats;

    /// Whether the database answers.
    fn ping(&self) -> impl Future<Output = Result<(), Error>> + Send;
}
