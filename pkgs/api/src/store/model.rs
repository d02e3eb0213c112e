//! Queries and their results.

use jiff::Timestamp;

use crate::user::{Record, Status, UserId};

use super::entry;
use super::last_use::LastUse;

/// A request that is executed once, however often it is sent. Its answer is stored in the transaction of its write.
#[derive(Clone, Debug)]
pub struct IdempotencyRecord {
    /// Its owner: the API key, or nobody.
    pub owner: Option<i64>,
    /// The client's `Idempotency-Key`.
    pub key: String,
    /// SHA-256 of method, path and body. It tells whether the key was used for another request.
    pub digest: [u8; 32],
}

/// The result of creating.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// Created, in the requested order.
    Done(Vec<Record>),
    /// The same request created them before. They are as they were then.
    Before(Vec<Record>),
    /// The same request created them before, but one of the users was deleted, and with it the stored answer.
    Erased,
    /// The key was used for another request.
    KeyReused,
    /// The email of the document at this index is taken, or an earlier document of the request has it.
    EmailTaken(usize),
}

/// The result of replacing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Done.
    Done(Record),
    /// There is no such user.
    Missing,
    /// The user is at this version instead of the expected one.
    Changed(i64),
    /// Another user has the email.
    EmailTaken,
}

/// The result of deleting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// These existed and are deleted, in no order.
    Done(Vec<UserId>),
    /// The user is at this version instead of the expected one.
    Changed(i64),
}

/// The users of a list or a count: those that meet every given condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// With this status.
    pub status: Option<Status>,
    /// With exactly this tag.
    pub tag: Option<String>,
    /// With this email, ignoring case.
    pub email: Option<String>,
    /// Created at this time or later.
    pub created_after: Option<Timestamp>,
    /// Created before this time.
    pub created_before: Option<Timestamp>,
    /// Each one is the start of a word of name, email, tags or bio, ignoring case.
    pub words: Vec<String>,
}

impl Filter {
    /// The most words that are searched for. More would only make the search more expensive.
    pub const WORDS: usize = 8;
}

/// A query for a page of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The conditions.
    pub filter: Filter,
    /// The order.
    pub sort: Sort,
    /// The place after which the page starts.
    pub after: Option<Position>,
    /// The most users.
    pub limit: u32,
}

/// An order of users. Equal ones are sorted by id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    /// The sort column.
    pub by: SortBy,
    /// Greatest first.
    pub descending: bool,
}

/// Sort columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// When they were created.
    #[default]
    CreatedAt,
    /// When they were last changed.
    UpdatedAt,
    /// Their names in lower case, by code point.
    Name,
    /// Their emails, likewise.
    Email,
}

/// A place in an order: directly after this user, who may be deleted by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The user's sort key.
    pub key: SortKey,
    /// The user.
    pub id: UserId,
}

/// A user's sort key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// Microseconds since the Unix epoch.
    Time(i64),
    /// Lower case.
    Text(String),
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The users, in order.
    pub records: Vec<Record>,
    /// Where the next page starts, if there is one.
    pub next: Option<Position>,
}

/// The rights of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

impl Scope {
    /// Its name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// As it is stored.
    pub(super) fn number(self) -> i16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
        }
    }

    /// From what is stored.
    pub(super) fn of(number: i16) -> Self {
        if number == 1 { Self::Write } else { Self::Read }
    }
}

/// An API key to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// Its name.
    pub name: String,
    /// SHA-256 of the secret, which is not stored.
    pub digest: [u8; 32],
    /// Its rights.
    pub scope: Scope,
    /// Requests per second in the long run; no limit if absent.
    pub rate: Option<u32>,
    /// Requests at once.
    pub burst: Option<u32>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// An API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its id, which is never reused.
    pub id: i64,
    /// SHA-256 of the secret.
    pub digest: [u8; 32],
    /// Its name.
    pub name: String,
    /// Its rights.
    pub scope: Scope,
    /// Requests per second in the long run; no limit if absent.
    pub rate: Option<u32>,
    /// Requests at once.
    pub burst: Option<u32>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it was last used.
    pub last_use: LastUse,
}

impl NewKey {
    /// The created key.
    pub(super) fn with(self, id: i64, created_at: i64) -> Key {
        let Self { name, digest, scope, rate, burst, expires_at } = self;
        let (created_at, last_use) = (entry::time(created_at), LastUse::never());
        Key { id, digest, name, scope, rate, burst, created_at, expires_at, last_use }
    }
}
