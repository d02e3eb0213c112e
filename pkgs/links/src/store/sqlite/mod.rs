//! Links in SQLite, with one writer thread and any number of read connections.
//!
//! [`Store`] passes jobs to the writer over a bounded queue. The writer puts all waiting jobs into one transaction,
//! and answers each after the commit. [`Reader`] is a read connection with prepared statements, owned by one thread.

mod connection;
mod database_copy;
mod reader;
mod schema;
mod tables;
mod work;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::code::CodePolicy;
use crate::domains::{Domain, DomainPatch, Domains, InDomains, LinkKey, NewDomain, SharedDomains};
use crate::link::{Link, LinkPatch, ManyPatch, NewLink};
use crate::target::TargetPolicy;
use crate::when::Timestamp;

use service::ready::Watch;

use tables::{clicks, domains, hours, links, retention, tokens};

use super::database_copy::{Filling, Snapshot};
use super::draft::{Draft, Edit};
use super::{
    ClickBatch, Created, Error, FoldCursor, IdempotencyKey, NewToken, OnChange, OnConflict, Pending, Policy,
    Record, Tally, TokenInfo, rules,
};

pub use reader::Reader;

/// Options for opening a store.
pub struct Options {
    /// The database file. It is created if absent, with its directories.
    pub path: PathBuf,
    /// The rules for codes.
    pub codes: CodePolicy,
    /// The rules for targets.
    pub targets: TargetPolicy,
    /// How many jobs may wait for the writer. Further ones fail with [`Error::Busy`].
    pub queue: usize,
    /// Called on the writer thread after a commit and before it is acknowledged.
    pub on_change: OnChange,
}

impl Options {
    /// A database with the default rules, a queue of 1024 jobs, and nobody who is told of commits.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            codes: CodePolicy::default(),
            targets: TargetPolicy::default(),
            queue: 1024,
            on_change: Box::new(|_| {}),
        }
    }
}

/// A handle to the writer. It is cheap to clone, and all threads share it.
#[derive(Clone)]
pub struct Store {
    path: Arc<PathBuf>,
    policy: Arc<Policy>,
    writer: Arc<writer::WriterHandle>,
}

/// Whether a database needs no migration.
///
/// # Errors
/// When it cannot be read, or is not a database.
pub fn is_current(path: &Path) -> Result<bool, Error> {
    schema::is_current(&connection::reader(path)?)
}

impl Store {
    /// Opens the database, migrates its schema and starts the writer thread. A read-only database is served as it is,
    /// and writes fail with [`Error::ReadOnly`].
    pub fn open(options: Options) -> Result<Self, Error> {
        let (connection, writable) = connection::writer(&options.path)?;
        let domains = Arc::new(SharedDomains::default());
        domains.set(domains::load(&connection)?);
        let policy = Policy { codes: options.codes, targets: options.targets, domains: Arc::clone(&domains) };
        let writer =
            writer::WriterHandle::start(connection, writable, options.queue, options.on_change, domains);
        Ok(Self { path: Arc::new(options.path), policy: Arc::new(policy), writer: Arc::new(writer) })
    }

    /// The domains, as of the last commit.
    pub fn domains(&self) -> Arc<Domains> {
        self.policy.domains.now()
    }

    /// Like [`domains`](Self::domains), for frequent reads.
    pub fn shared_domains(&self) -> Arc<SharedDomains> {
        Arc::clone(&self.policy.domains)
    }

    /// Reads a consistent snapshot of the whole file.
    pub fn snapshot<T>(
        &self,
        read: impl FnOnce(&mut (dyn Snapshot + Send)) -> Result<T, Error>,
    ) -> Result<T, Error> {
        database_copy::snapshot(&self.path, read)
    }

    /// Fills the file, if it is empty.
    pub fn fill<T>(&self, fill: impl FnOnce(&mut dyn Filling) -> Result<T, Error>) -> Result<T, Error> {
        database_copy::fill(&self.path, fill)
    }

    /// Creates a domain.
    pub fn create_domain(&self, new: NewDomain) -> Pending<Domain> {
        match rules::domains::draft(new, &self.policy) {
            Ok(domain) => self.writer.submit(move |work| domains::create(work, domain)),
            Err(error) => Pending::refused(error),
        }
    }

    /// Applies a merge patch to a domain.
    pub fn edit_domain(&self, host: String, patch: DomainPatch) -> Pending<Domain> {
        match rules::domains::checked(patch, &self.policy) {
            Ok(patch) => self.writer.submit(move |work| domains::edit(work, &host, patch)),
            Err(error) => Pending::refused(error),
        }
    }

    /// Deletes a domain; with `force`, also its links and their clicks. One call deletes a limited number of links and
    /// returns whether the domain is gone. Call it again until it is.
    pub fn delete_domain(&self, host: String, force: bool) -> Pending<bool> {
        self.writer.submit(move |work| domains::delete(work, &host, force))
    }

    /// A new read connection.
    pub fn reader(&self) -> Result<Reader, Error> {
        Reader::open(&self.path, self.writer.commits())
    }

    /// Creates a link. Checks it, and hashes a password (some 20 ms), on the calling thread. With a key, a repeat of
    /// the same request within 24 hours returns the first one's link.
    pub fn create(&self, link: NewLink, key: Option<IdempotencyKey>) -> Pending<Created> {
        self.create_within(&InDomains::All, link, key)
    }

    /// Like [`create`](Self::create), at these domains only.
    pub fn create_within(
        &self,
        within: &InDomains,
        link: NewLink,
        key: Option<IdempotencyKey>,
    ) -> Pending<Created> {
        let policy = Arc::clone(&self.policy);
        match Draft::new(link, &self.policy, within) {
            Ok(draft) => {
                self.writer.submit(move |work| links::create(work, &policy.codes, draft, key.as_ref()))
            }
            Err(error) => Pending::refused(error),
        }
    }

    /// Creates many links in one transaction, at these domains only. Each succeeds or fails separately.
    pub fn create_many(&self, within: &InDomains, links: Vec<NewLink>) -> Pending<Vec<Result<Link, Error>>> {
        let policy = Arc::clone(&self.policy);
        let drafts: Vec<_> = links.into_iter().map(|link| Draft::new(link, &self.policy, within)).collect();
        self.writer.submit(move |work| {
            let created = drafts.into_iter().map(|draft| links::insert(work, &policy.codes, draft?));
            each_on_its_own(created)
        })
    }

    /// Applies a merge patch.
    pub fn edit(&self, key: impl Into<LinkKey>, patch: LinkPatch) -> Pending<Link> {
        self.edit_if(key, patch, |_| true)
    }

    /// Applies a merge patch if the link is `expected`; otherwise fails with [`Error::Changed`].
    pub fn edit_if(
        &self,
        key: impl Into<LinkKey>,
        patch: LinkPatch,
        expected: impl FnOnce(&Link) -> bool + Send + 'static,
    ) -> Pending<Link> {
        let key = key.into();
        match Edit::new(patch, &self.policy) {
            Ok(edit) => self.writer.submit(move |work| links::edit(work, key, edit, expected)),
            Err(error) => Pending::refused(error),
        }
    }

    /// Applies the same change to many links in one transaction; each succeeds or fails separately. Calls `see` with
    /// each link before and after the change, and returns the results.
    pub fn edit_many<T: Send + 'static>(
        &self,
        keys: Vec<LinkKey>,
        patch: ManyPatch,
        see: impl Fn(&Link, &Link) -> T + Send + Sync + 'static,
    ) -> Pending<Vec<Result<T, Error>>> {
        let edit = match Edit::of_many(patch, &self.policy) {
            Ok(edit) => edit,
            Err(error) => return Pending::refused(error),
        };
        self.writer.submit(move |work| {
            each_on_its_own(keys.into_iter().map(|key| {
                let before = links::get(work.connection, &key)?;
                let after = links::edit(work, key, edit.clone(), |_| true)?;
                Ok(see(&before, &after))
            }))
        })
    }

    /// Deletes a link and its clicks.
    pub fn delete(&self, key: impl Into<LinkKey>) -> Pending<()> {
        let key = key.into();
        self.writer.submit(move |work| links::delete(work, key))
    }

    /// Deletes a link if it is `expected`; otherwise fails with [`Error::Changed`].
    pub fn delete_if(
        &self,
        key: impl Into<LinkKey>,
        expected: impl FnOnce(&Link) -> bool + Send + 'static,
    ) -> Pending<()> {
        let key = key.into();
        self.writer.submit(move |work| match expected(&links::get(work.connection, &key)?) {
            true => links::delete(work, key),
            false => Err(Error::Changed),
        })
    }

    /// Deletes many links in one transaction. Each succeeds or fails separately.
    pub fn delete_many(&self, keys: Vec<impl Into<LinkKey>>) -> Pending<Vec<Result<(), Error>>> {
        let keys: Vec<LinkKey> = keys.into_iter().map(Into::into).collect();
        self.writer.submit(move |work| each_on_its_own(keys.into_iter().map(|key| links::delete(work, key))))
    }

    /// Like [`delete_many`](Self::delete_many), but calls `see` with each link before it is deleted, and returns the
    /// results.
    pub fn delete_many_seen<T: Send + 'static>(
        &self,
        keys: Vec<LinkKey>,
        see: impl Fn(&Link) -> T + Send + 'static,
    ) -> Pending<Vec<Result<T, Error>>> {
        self.writer.submit(move |work| {
            each_on_its_own(keys.into_iter().map(|key| {
                let seen = see(&links::get(work.connection, &key)?);
                links::delete(work, key).map(|()| seen)
            }))
        })
    }

    /// Imports a batch of rows in one transaction, at these domains only. Each succeeds or fails separately. Checks them
    /// on the calling thread. If the import `is_over` before the transaction begins, nothing is stored.
    pub fn import(
        &self,
        batch: Vec<Record>,
        on_conflict: OnConflict,
        within: &InDomains,
        is_over: &Arc<AtomicBool>,
    ) -> Pending<Tally> {
        let (policy, is_over) = (Arc::clone(&self.policy), Arc::clone(is_over));
        let drafts = Draft::of_records(batch, &policy, within, &is_over);
        self.writer.submit(move |work| match is_over.load(Ordering::Relaxed) {
            true => Ok(Tally::default()),
            false => links::import(work, &policy.codes, drafts, on_conflict),
        })
    }

    /// Adds a worker's clicks. Clicks of deleted links are dropped. Keep the batch until the answer: if it is an error,
    /// nothing was counted.
    pub fn count(&self, batch: Arc<ClickBatch>) -> Pending<()> {
        self.writer.submit_clicks(move |work| clicks::count(work, &batch))
    }

    /// Merges each link's days of clicks before day `before` (since the Unix epoch) into one. One call merges a small
    /// part, from link `from` on. It returns where to continue, or `None` once all are done. Sums do not change, even
    /// if the rest is never merged.
    pub fn fold_days(&self, before: i32, from: FoldCursor) -> Pending<Option<FoldCursor>> {
        self.writer.submit_clicks(move |work| {
            let next = retention::fold(work.connection, before, from.0)?;
            Ok(next.map(FoldCursor))
        })
    }

    /// Deletes clicks by hour before hour `before`, a small part at a time.
    pub fn forget_hours(&self, before: i32, from: FoldCursor) -> Pending<Option<FoldCursor>> {
        self.writer.submit_clicks(move |work| {
            let next = hours::forget(work.connection, before, from.0)?;
            Ok(next.map(FoldCursor))
        })
    }

    /// Creates a token. Its secret is only in the answer.
    pub fn create_token(&self, new: NewToken) -> Pending<(TokenInfo, String)> {
        self.writer.submit(move |work| tokens::create(work, new))
    }

    /// Revokes a token.
    pub fn revoke_token(&self, id: i64) -> Pending<()> {
        self.writer.submit(move |work| tokens::revoke(work, id))
    }

    /// Records a token's use. A power cut may lose it.
    pub fn token_used(&self, id: i64, at: Timestamp) -> Pending<()> {
        self.writer.submit_clicks(move |work| tokens::used(work, id, at))
    }

    /// Whether it accepts writes.
    pub fn is_writable(&self) -> bool {
        self.writer.is_writable()
    }

    /// How many jobs wait for the writer.
    pub fn depth(&self) -> usize {
        self.writer.depth()
    }

    /// Starts to watch the writer. It counts as stuck if one transaction takes `stuck`.
    pub fn watch(&self, stuck: Duration) -> Watch {
        self.writer.watch(stuck)
    }

    /// Whether the writer has ended, by being closed or by a panic.
    pub fn has_ended(&self) -> bool {
        self.writer.has_ended()
    }

    /// Commits waiting jobs, checkpoints, and stops the writer. Later writes fail with [`Error::Closed`].
    pub fn close(&self) {
        self.writer.close();
    }
}

/// Collects the result of each job, unless the transaction as a whole is lost.
fn each_on_its_own<T>(
    results: impl Iterator<Item = Result<T, Error>>,
) -> Result<Vec<Result<T, Error>>, Error> {
    results
        .map(|result| match result {
            Err(error) if error.ends_transaction() => Err(error),
            result => Ok(result),
        })
        .collect()
}
