//! What is asked of a database, and what it answers.

use jiff::Timestamp;

use crate::user::{Record, Status, UserId};

use super::entry;
use super::last_use::LastUse;

/// A request that is made once, however often it is sent: its answer is kept in the transaction of its write.
#[derive(Clone, Debug)]
pub struct IdempotencyRecord {
    /// Whose: the API key, or nobody.
    pub owner: Option<i64>,
    /// The client's `Idempotency-Key`.
    pub key: String,
    /// SHA-256 of method, path and body: a key means one request.
    pub digest: [u8; 32],
}

/// What came of creating.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// Done, in the order asked for.
    Done(Vec<Record>),
    /// Done before by the same request; as it was then.
    Before(Vec<Record>),
    /// Done before by the same request, and a user that it created has been deleted, with what was kept of the answer.
    Erased,
    /// The key was used for another request.
    KeyReused,
    /// Somebody has the email of the document at this index, or an earlier document of the same request has.
    EmailTaken(usize),
}

/// What came of replacing.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What came of deleting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Those that there were are gone, in no order.
    Done(Vec<UserId>),
    /// The user is at this version, which is not the expected one.
    Changed(i64),
}

/// Which users a list or a count is about: those that meet everything given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// With this status.
    pub status: Option<Status>,
    /// With exactly this tag.
    pub tag: Option<String>,
    /// With this email, without regard to case.
    pub email: Option<String>,
    /// Created at this instant or later.
    pub created_after: Option<Timestamp>,
    /// Created before this instant.
    pub created_before: Option<Timestamp>,
    /// Each is the beginning of some word of name, email, tags or bio, without regard to case.
    pub words: Vec<String>,
}

/// A page of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which users.
    pub filter: Filter,
    /// In which order.
    pub sort: Sort,
    /// After which one.
    pub after: Option<Position>,
    /// At most so many.
    pub limit: u32,
}

/// An order of users; equals are in the order of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub by: SortBy,
    /// Greatest first.
    pub descending: bool,
}

/// What users are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// When they were created.
    #[default]
    CreatedAt,
    /// When they were last written.
    UpdatedAt,
    /// Their names, in lower case, by code points.
    Name,
    /// Their emails, likewise.
    Email,
}

/// A place in an order: just after a user that may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// What the user is ordered by.
    pub key: SortKey,
    /// The user.
    pub id: UserId,
}

/// What a user is ordered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// Microseconds since the Unix epoch.
    Time(i64),
    /// Lower case.
    Text(String),
}

/// Part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The users, in order.
    pub records: Vec<Record>,
    /// Where the next page begins, where there is one.
    pub next: Option<Position>,
}

/// What an API key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

impl Scope {
    /// What people and programs call it.
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

/// An API key to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// What people call it.
    pub name: String,
    /// SHA-256 of the secret, which is kept nowhere.
    pub digest: [u8; 32],
    /// What it is for.
    pub scope: Scope,
    /// Requests a second in the long run; as many as it likes where absent.
    pub rate: Option<u32>,
    /// Requests at once.
    pub burst: Option<u32>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// An API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its number; never another key's.
    pub id: i64,
    /// SHA-256 of the secret.
    pub digest: [u8; 32],
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub scope: Scope,
    /// Requests a second in the long run; as many as it likes where absent.
    pub rate: Option<u32>,
    /// Requests at once.
    pub burst: Option<u32>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// When it was last used.
    pub last_use: LastUse,
}

impl NewKey {
    /// The key that this becomes.
    pub(super) fn with(self, id: i64, created_at: i64) -> Key {
        let Self { name, digest, scope, rate, burst, expires_at } = self;
        let (created_at, last_use) = (entry::time(created_at), LastUse::never());
        Key { id, digest, name, scope, rate, burst, created_at, expires_at, last_use }
    }
}
