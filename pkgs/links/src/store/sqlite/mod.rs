//! Links in SQLite, with one writer thread and any number of read connections.
//!
//! [`Store`] hands work to the writer over a bounded queue; the writer puts what waits into one
//! transaction and answers each piece after its commit. [`Reader`] is one read connection with its
//! statements prepared, owned by one thread.

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
use std::time::Duration;

use crate::code::CodePolicy;
use crate::domains::{Domain, DomainPatch, Domains, LinkKey, NewDomain, SharedDomains};
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

/// How a store is opened.
pub struct Options {
    /// The database file; created where absent, with the directories above it.
    pub path: PathBuf,
    /// Which codes are made and taken.
    pub codes: CodePolicy,
    /// Which targets are taken.
    pub targets: TargetPolicy,
    /// How much work may wait for the writer; more is refused with [`Error::Busy`].
    pub queue: usize,
    /// Called on the writer thread after a commit and before it is acknowledged.
    pub on_change: OnChange,
}

/// A handle to the writer; cheap to clone, shared by all threads.
#[derive(Clone)]
pub struct Store {
    path: Arc<PathBuf>,
    policy: Arc<Policy>,
    writer: Arc<writer::WriterHandle>,
}

/// Whether no migration of a database is left to be made.
///
/// # Errors
/// When it cannot be read, or is none.
pub fn is_current(path: &Path) -> Result<bool, Error> {
    schema::is_current(&connection::reader(path)?)
}

impl Store {
    /// Opens the database, migrates its schema forward and starts the writer thread. A database that cannot
    /// be written is served as it is; writes then answer [`Error::ReadOnly`].
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

    /// The same for who looks often.
    pub fn shared_domains(&self) -> Arc<SharedDomains> {
        Arc::clone(&self.policy.domains)
    }

    /// Reads all of it, as it is now.
    pub fn snapshot<T>(
        &self,
        read: impl FnOnce(&mut (dyn Snapshot + Send)) -> Result<T, Error>,
    ) -> Result<T, Error> {
        database_copy::snapshot(&self.path, read)
    }

    /// Fills it where it is empty.
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

    /// Deletes a domain, with `force` along with its links and their clicks. Of many links a part at a time: answers
    /// whether the domain is gone, and is to be called until it is.
    pub fn delete_domain(&self, host: String, force: bool) -> Pending<bool> {
        self.writer.submit(move |work| domains::delete(work, &host, force))
    }

    /// A new read connection.
    pub fn reader(&self) -> Result<Reader, Error> {
        Reader::open(&self.path, self.writer.commits())
    }

    /// Creates a link. Validates, and hashes a password (some 20 ms), on the calling thread.
    /// With a key, a repeat of the same request within 24 hours answers with the first one's link.
    pub fn create(&self, link: NewLink, key: Option<IdempotencyKey>) -> Pending<Created> {
        let policy = Arc::clone(&self.policy);
        match Draft::new(link, &self.policy) {
            Ok(draft) => {
                self.writer.submit(move |work| links::create(work, &policy.codes, draft, key.as_ref()))
            }
            Err(error) => Pending::refused(error),
        }
    }

    /// Creates many; one transaction, each link on its own merits.
    pub fn create_many(&self, links: Vec<NewLink>) -> Pending<Vec<Result<Link, Error>>> {
        let policy = Arc::clone(&self.policy);
        let drafts: Vec<_> = links.into_iter().map(|link| Draft::new(link, &self.policy)).collect();
        self.writer.submit(move |work| {
            let created = drafts.into_iter().map(|draft| links::insert(work, &policy.codes, draft?));
            each_on_its_own(created)
        })
    }

    /// Applies a merge patch.
    pub fn edit(&self, key: impl Into<LinkKey>, patch: LinkPatch) -> Pending<Link> {
        self.edit_if(key, patch, |_| true)
    }

    /// Applies a merge patch to a link that is as `expected`; else answers [`Error::Changed`].
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

    /// Applies the same change to many; one transaction, each on its own merits. Answers what `see` made of each before, and
    /// what it is after.
    pub fn edit_many<T: Send + 'static>(
        &self,
        keys: Vec<LinkKey>,
        patch: ManyPatch,
        see: impl Fn(&Link) -> T + Send + Sync + 'static,
    ) -> Pending<Vec<Result<(T, Link), Error>>> {
        let edit = match Edit::of_many(patch, &self.policy) {
            Ok(edit) => edit,
            Err(error) => return Pending::refused(error),
        };
        self.writer.submit(move |work| {
            each_on_its_own(keys.into_iter().map(|key| {
                let seen = see(&links::get(work.connection, &key)?);
                Ok((seen, links::edit(work, key, edit.clone(), |_| true)?))
            }))
        })
    }

    /// Deletes a link and its clicks.
    pub fn delete(&self, key: impl Into<LinkKey>) -> Pending<()> {
        let key = key.into();
        self.writer.submit(move |work| links::delete(work, key))
    }

    /// Deletes a link that is as `expected`; else answers [`Error::Changed`].
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

    /// Deletes many; one transaction, each on its own merits.
    pub fn delete_many(&self, keys: Vec<impl Into<LinkKey>>) -> Pending<Vec<Result<(), Error>>> {
        let keys: Vec<LinkKey> = keys.into_iter().map(Into::into).collect();
        self.writer.submit(move |work| each_on_its_own(keys.into_iter().map(|key| links::delete(work, key))))
    }

    /// The same, with what `see` makes of each link before it is deleted.
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

    /// Imports a batch of rows in one transaction, each on its own merits. Validates on the calling thread.
    pub fn import(&self, batch: Vec<Record>, on_conflict: OnConflict) -> Pending<Tally> {
        let policy = Arc::clone(&self.policy);
        let drafts: Vec<_> = batch.into_iter().map(|record| Draft::of_record(record, &self.policy)).collect();
        self.writer.submit(move |work| links::import(work, &policy.codes, drafts, on_conflict))
    }

    /// Adds a worker's clicks. Clicks of links gone since are dropped. Keep the batch until the answer: where
    /// it is an error, nothing of it was counted.
    pub fn count(&self, batch: Arc<ClickBatch>) -> Pending<()> {
        self.writer.submit_clicks(move |work| clicks::count(work, &batch))
    }

    /// Folds days of clicks before day `before` (since the Unix epoch) into one a link, in which they cannot be told apart
    /// any more. Does a small part of it, from this link on, and answers where the next one begins; none where all are
    /// done. Sums stay what they are, also where the rest is never done.
    pub fn fold_days(&self, before: i32, from: FoldCursor) -> Pending<Option<FoldCursor>> {
        self.writer.submit_clicks(move |work| {
            let next = retention::fold(work.connection, before, from.0)?;
            Ok(next.map(FoldCursor))
        })
    }

    /// Forgets clicks by hour of the hours before `before`, a small part of them.
    pub fn forget_hours(&self, before: i32, from: FoldCursor) -> Pending<Option<FoldCursor>> {
        self.writer.submit_clicks(move |work| {
            let next = hours::forget(work.connection, before, from.0)?;
            Ok(next.map(FoldCursor))
        })
    }

    /// Creates a token; the secret is in the answer and nowhere else.
    pub fn create_token(&self, new: NewToken) -> Pending<(TokenInfo, String)> {
        self.writer.submit(move |work| tokens::create(work, new))
    }

    /// Revokes a token.
    pub fn revoke_token(&self, id: i64) -> Pending<()> {
        self.writer.submit(move |work| tokens::revoke(work, id))
    }

    /// Notes that a token was used then; a power cut may take that back.
    pub fn token_used(&self, id: i64, at: Timestamp) -> Pending<()> {
        self.writer.submit_clicks(move |work| tokens::used(work, id, at))
    }

    /// How many pieces of work wait for the writer.
    pub fn depth(&self) -> usize {
        self.writer.depth()
    }

    /// Looks at the writer from now on; one that is at one transaction for `stuck` is not alive.
    pub fn watch(&self, stuck: Duration) -> Watch {
        self.writer.watch(stuck)
    }

    /// Whether the writer is there no more, having been closed or by a panic.
    pub fn has_ended(&self) -> bool {
        self.writer.has_ended()
    }

    /// Commits what waits, checkpoints, and stops the writer. Later writes answer [`Error::Closed`].
    pub fn close(&self) {
        self.writer.close();
    }
}

/// Collects what became of each, unless the transaction as a whole is lost.
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
