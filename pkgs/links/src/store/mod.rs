//! The store: SQLite with one writer thread and any number of read connections.
//!
//! [`Store`] hands commands to the writer over a bounded queue; the writer puts what waits into one
//! transaction and answers each command after its commit. [`Reader`] is one read connection with its
//! statements prepared, owned by one thread.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agent::Agent;
use crate::code::{CodePolicy, InvalidCode};
use crate::link::{Link, LinkPatch, NewLink, RedirectStatus, Status};
use crate::target::{InvalidTarget, TargetPolicy};
use crate::when::Timestamp;

/// How a store is opened.
pub struct Options {
    /// The database file; created where absent.
    pub path: PathBuf,
    /// Which codes are made and taken.
    pub codes: CodePolicy,
    /// Which targets are taken.
    pub targets: TargetPolicy,
    /// How many commands may wait for the writer; one more is refused with [`Error::Busy`].
    pub queue: usize,
    /// Called on the writer thread after a commit and before its commands are acknowledged.
    pub on_change: Box<dyn Fn(Change<'_>) + Send + Sync>,
}

/// What a commit touched.
pub enum Change<'a> {
    /// The links with these codes were created, edited or deleted.
    Codes(&'a [String]),
    /// Anything may have changed: an import, or a commit by another process.
    All,
}

/// Why the store refuses.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No link has this code.
    #[error("no link has the code {0:?}")]
    NotFound(String),
    /// Another link has this code.
    #[error("the code {0:?} is taken")]
    Taken(String),
    /// The code breaks the rules.
    #[error(transparent)]
    Code(#[from] InvalidCode),
    /// The target breaks the rules.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// Another field breaks the rules: its name and how.
    #[error("{field}: {reason}")]
    Field {
        /// As in [`NewLink`].
        field: &'static str,
        /// For people.
        reason: String,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The writer's queue is full, or the database stays locked by another process.
    #[error("the store is busy; try again")]
    Busy,
    /// A read took longer than it may.
    #[error("the query took too long")]
    TooSlow,
    /// No space is left for a write.
    #[error("the disk is full")]
    Full,
    /// The database cannot be written.
    #[error("the database is read-only")]
    ReadOnly,
    /// The database was written by a newer release.
    #[error("the database has schema version {found}; this release knows up to {known}")]
    TooNew {
        /// The file's `user_version`.
        found: i64,
        /// The newest this build migrates to.
        known: i64,
    },
    /// The writer is gone: the store was closed.
    #[error("the store is closed")]
    Closed,
    /// Anything else SQLite says.
    #[error(transparent)]
    Sqlite(rusqlite::Error),
}

/// The answer to a command: a future for the API, [`Pending::wait`] for the command line.
pub struct Pending<T>(tokio::sync::oneshot::Receiver<Result<T, Error>>);

impl<T> Pending<T> {
    /// Blocks until the commit. Not for use on an async thread.
    pub fn wait(self) -> Result<T, Error> {
        self.0.blocking_recv().unwrap_or(Err(Error::Closed))
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(Error::Closed)))
    }
}

/// A handle to the writer; cheap to clone, shared by all threads.
#[derive(Clone)]
pub struct Store {}

/// The outcome of a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The link as stored.
    pub link: Link,
    /// Whether an earlier request with the same idempotency key had created it.
    pub replayed: bool,
}

/// What an import does with a code that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Counts the row as failed.
    #[default]
    Fail,
    /// Leaves the link that is there.
    Skip,
    /// Replaces it; its clicks stay.
    Replace,
}

/// One row of an import or export: a link, and what only a copy of a link knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// The link.
    #[serde(flatten)]
    pub link: NewLink,
    /// When it was created; now where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub created_at: Option<Timestamp>,
    /// Clicks so far.
    #[serde(default)]
    pub clicks: u64,
    /// The argon2id hash of its password (PHC string); only in exports that ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
}

/// What became of an imported batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// Rows that are now links.
    pub created: u64,
    /// Rows that replaced a link.
    pub replaced: u64,
    /// Rows left out because their code was taken.
    pub skipped: u64,
    /// Rows refused.
    pub failed: u64,
    /// The first refusals (at most 100): the row's number within the batch, from 0, and why.
    pub errors: Vec<(u64, String)>,
}

/// Clicks of one worker since its last flush.
#[derive(Clone, Debug, Default)]
pub struct ClickBatch {
    /// Referrer host names; a click names one by its index. Index 0 is the empty string: none.
    pub referrers: Vec<String>,
    /// The counts.
    pub clicks: Vec<Click>,
}

/// How often one link was followed on one day from one referrer by one kind of agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Click {
    /// [`Link::id`].
    pub link: i64,
    /// Days since the Unix epoch, UTC.
    pub day: i32,
    /// Index into [`ClickBatch::referrers`].
    pub referrer: u32,
    /// Who followed it.
    pub agent: Agent,
    /// How often.
    pub count: u32,
}

/// What a redirect needs to know of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// [`Link::id`].
    pub id: i64,
    /// [`Link::target`].
    pub target: String,
    /// [`Link::status`].
    pub status: Status,
    /// [`Link::redirect`].
    pub redirect: RedirectStatus,
    /// [`Link::forward_query`].
    pub forward_query: bool,
    /// [`Link::not_before`].
    pub not_before: Option<Timestamp>,
    /// [`Link::expires_at`].
    pub expires_at: Option<Timestamp>,
    /// [`Link::max_clicks`].
    pub max_clicks: Option<u64>,
    /// [`Link::clicks`].
    pub clicks: u64,
    /// The argon2id hash of the password (PHC string).
    pub password_hash: Option<String>,
}

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    /// By creation.
    #[default]
    Created,
    /// By last edit.
    Updated,
    /// By clicks.
    Clicks,
    /// By code, bytewise.
    Code,
}

/// A list query.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only links whose code, target or title contains this text, whatever its ASCII case.
    pub search: Option<String>,
    /// Only links with this tag.
    pub tag: Option<String>,
    /// Only links of this status.
    pub status: Option<Status>,
    /// The order.
    pub sort: Sort,
    /// Whether the greatest comes first.
    pub descending: bool,
    /// At most this many links; 1 to 1,000.
    pub limit: usize,
    /// [`Page::next`] of the page before.
    pub cursor: Option<String>,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page {
    /// The links.
    pub links: Vec<Link>,
    /// The cursor of the next page; none on the last.
    pub next: Option<String>,
}

/// Clicks, summed three ways over the same days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Clicks in all.
    pub clicks: u64,
    /// By day (`2030-01-31`, UTC), oldest first, days without clicks left out.
    pub days: Vec<Count>,
    /// By referrer host, most first, at most 100; the empty name is a visit without one.
    pub referrers: Vec<Count>,
    /// By kind of agent, most first.
    pub agents: Vec<Count>,
}

/// One line of a breakdown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Count {
    /// What was counted.
    pub name: String,
    /// How often.
    pub clicks: u64,
}

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
}

/// A token as the store lists it; the secret itself is shown once, at creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    /// What it is revoked by.
    pub id: i64,
    /// For people.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// How far an online backup has come, in database pages.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Pages copied.
    pub done: u64,
    /// Pages in all.
    pub total: u64,
}

impl Store {
    /// Opens the database, migrates its schema forward and starts the writer thread.
    pub fn open(options: Options) -> Result<Self, Error> {
        let _ = options;
        todo!("helper: store")
    }

    /// A new read connection with its statements prepared.
    pub fn reader(&self) -> Result<Reader, Error> {
        todo!("helper: store")
    }

    /// Creates a link. Validates, and hashes a password (some 20 ms), on the calling thread.
    /// With a key, a repeat of the same request within 24 hours answers with the first one's link.
    pub fn create(&self, link: NewLink, key: Option<String>) -> Pending<Created> {
        let _ = (link, key);
        todo!("helper: store")
    }

    /// Creates many; one transaction, each link on its own merits.
    pub fn create_many(&self, links: Vec<NewLink>) -> Pending<Vec<Result<Link, Error>>> {
        let _ = links;
        todo!("helper: store")
    }

    /// Applies a merge patch.
    pub fn edit(&self, code: String, patch: LinkPatch) -> Pending<Link> {
        let _ = (code, patch);
        todo!("helper: store")
    }

    /// Deletes a link and its clicks.
    pub fn delete(&self, code: String) -> Pending<()> {
        let _ = code;
        todo!("helper: store")
    }

    /// Deletes many; one transaction, each on its own merits.
    pub fn delete_many(&self, codes: Vec<String>) -> Pending<Vec<Result<(), Error>>> {
        let _ = codes;
        todo!("helper: store")
    }

    /// Imports a batch of rows in one transaction.
    pub fn import(&self, batch: Vec<Record>, on_conflict: OnConflict) -> Pending<Tally> {
        let _ = (batch, on_conflict);
        todo!("helper: store")
    }

    /// Adds a worker's clicks. Clicks of links gone since are dropped.
    pub fn count(&self, batch: ClickBatch) -> Pending<()> {
        let _ = batch;
        todo!("helper: store")
    }

    /// Creates a token; the secret is in the answer and nowhere else.
    pub fn create_token(&self, name: String, scope: Scope) -> Pending<(TokenInfo, String)> {
        let _ = (name, scope);
        todo!("helper: store")
    }

    /// Revokes a token.
    pub fn revoke_token(&self, id: i64) -> Pending<()> {
        let _ = id;
        todo!("helper: store")
    }

    /// How many commands wait for the writer.
    pub fn depth(&self) -> usize {
        todo!("helper: store")
    }

    /// Commits what waits, checkpoints, and stops the writer. Later commands answer [`Error::Closed`].
    pub fn close(&self) {
        todo!("helper: store")
    }
}

/// A read connection; `Send`, not `Sync`.
pub struct Reader {}

impl Reader {
    /// What a redirect needs, by code.
    pub fn route(&self, code: &str) -> Result<Option<Route>, Error> {
        let _ = code;
        todo!("helper: store")
    }

    /// A link by code.
    pub fn get(&self, code: &str) -> Result<Link, Error> {
        let _ = code;
        todo!("helper: store")
    }

    /// A page of links. Gives up with [`Error::TooSlow`] after 5 s.
    pub fn list(&self, query: &ListQuery) -> Result<Page, Error> {
        let _ = query;
        todo!("helper: store")
    }

    /// Walks all links by id in constant memory, until `visit` answers false.
    pub fn export(&self, hashes: bool, visit: &mut dyn FnMut(Record) -> bool) -> Result<(), Error> {
        let _ = (hashes, visit);
        todo!("helper: store")
    }

    /// Links in all.
    pub fn len(&self) -> Result<u64, Error> {
        todo!("helper: store")
    }

    /// Clicks of one link, or of all, between two days (RFC 3339 dates' days since the epoch, inclusive).
    pub fn stats(&self, code: Option<&str>, days: std::ops::RangeInclusive<i32>) -> Result<Stats, Error> {
        let _ = (code, days);
        todo!("helper: store")
    }

    /// The scope of a token, by its secret; compared in constant time.
    pub fn authorize(&self, secret: &str) -> Result<Option<Scope>, Error> {
        let _ = secret;
        todo!("helper: store")
    }

    /// The tokens, without their secrets.
    pub fn tokens(&self) -> Result<Vec<TokenInfo>, Error> {
        todo!("helper: store")
    }

    /// Copies the database to a new file while it is in use (SQLite's online backup).
    pub fn backup(&self, to: &std::path::Path, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let _ = (to, progress);
        todo!("helper: store")
    }

    /// SQLite's integrity and foreign key checks; what they found, empty when sound.
    pub fn check(&self) -> Result<Vec<String>, Error> {
        todo!("helper: store")
    }
}
