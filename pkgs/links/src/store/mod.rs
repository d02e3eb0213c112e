//! The database of links, domains, tokens and clicks.
//!
//! - [`Store`]: accepts writes, and answers each once it is committed; [`Reader`]: reads.
//! - `sqlite`: a file, with one writer thread and any number of read connections. The default.
//! - `postgres`: a server that several processes share; [`Watch`] learns of the other processes' writes.

mod database_copy;
mod draft;
mod error;
mod model;
mod pending;
mod policy;
mod postgres;
mod rules;
mod sqlite;
mod watch;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::{Extensions, HeaderMap};
use service::ready::Watch as Liveness;

use crate::domains::{Domain, DomainId, DomainPatch, Domains, InDomains, LinkKey, NewDomain, SharedDomains};
use crate::link::{Link, LinkPatch, ManyPatch, NewLink};
use crate::when::{HOURS, Timestamp};

use policy::Policy;
use rules::tokens;

pub use ::postgres::{Comment, carrying, commented};
pub use database_copy::{Migrated, MigratedTable};
pub use error::Error;
pub use model::*;
pub use pending::Pending;
pub use postgres::{FoundRoute, PostgresOptions, Remote};
pub use rules::clicks::OTHER;
pub use sqlite::{Options, is_current};
pub use watch::{Change, OnChange, Watch};

/// A handle to the database. It is cheap to clone, and all threads share it.
#[derive(Clone)]
pub struct Store(Database);

#[derive(Clone)]
enum Database {
    Sqlite(sqlite::Store),
    Postgres(Arc<postgres::Postgres>),
}

/// Calls a method of either kind of database.
macro_rules! either {
    ($store:expr, $database:ident => $call:expr) => {
        match &$store.0 {
            Database::Sqlite($database) => $call,
            Database::Postgres($database) => $call,
        }
    };
}

impl Store {
    /// Opens the file, migrates its schema and starts the writer thread. A read-only database is served as it is, and
    /// writes fail with [`Error::ReadOnly`].
    ///
    /// # Errors
    /// When it cannot be opened, or is not ours.
    pub fn open(options: Options) -> Result<Self, Error> {
        Ok(Self(Database::Sqlite(sqlite::Store::open(options)?)))
    }

    /// Connects to PostgreSQL, and migrates its schema.
    ///
    /// # Errors
    /// When it cannot be reached, or is not ours.
    pub fn connect(options: PostgresOptions) -> Result<Self, Error> {
        Ok(Self(Database::Postgres(postgres::Postgres::open(options)?)))
    }

    /// Reads that wait for a database server. `None` with SQLite, where [`Reader::route_at`] reads synchronously.
    pub fn remote(&self) -> Option<Remote> {
        match &self.0 {
            Database::Sqlite(_) => None,
            Database::Postgres(postgres) => Some(Remote::of(Arc::clone(postgres))),
        }
    }

    /// The SQL comment for the statements of a request with these extensions and fields. It carries the request's
    /// trace, if the trace is recorded and statements are to carry it.
    pub fn trace(&self, extensions: &Extensions, fields: &HeaderMap) -> Option<Comment> {
        match &self.0 {
            Database::Sqlite(_) => None,
            Database::Postgres(postgres) => postgres.trace(extensions, fields),
        }
    }

    /// The domains as of the last commit.
    pub fn domains(&self) -> Arc<Domains> {
        either!(self, database => database.domains())
    }

    /// Like [`domains`](Self::domains), for frequent reads.
    pub fn shared_domains(&self) -> Arc<SharedDomains> {
        either!(self, database => database.shared_domains())
    }

    /// Creates a domain.
    pub fn create_domain(&self, new: NewDomain) -> Pending<Domain> {
        either!(self, database => database.create_domain(new))
    }

    /// Applies a merge patch to a domain.
    pub fn edit_domain(&self, host: String, patch: DomainPatch) -> Pending<Domain> {
        either!(self, database => database.edit_domain(host, patch))
    }

    /// Deletes a domain; with `force`, also its links and their clicks. One call deletes a limited number of links and
    /// returns whether the domain is gone. Call it again until it is.
    pub fn delete_domain(&self, host: String, force: bool) -> Pending<bool> {
        either!(self, database => database.delete_domain(host, force))
    }

    /// Creates a link. Checks it, and hashes a password (some 20 ms), on the calling thread. With a key, a repeat of
    /// the same request within 24 hours returns the first one's link.
    pub fn create(&self, link: NewLink, key: Option<IdempotencyKey>) -> Pending<Created> {
        either!(self, database => database.create(link, key))
    }

    /// Like [`create`](Self::create), for a client that may use the domains `within`. At any other domain, it fails
    /// with [`Error::OtherDomain`], also at one that was created again under the name of one of these.
    pub fn create_within(
        &self,
        within: &InDomains,
        link: NewLink,
        key: Option<IdempotencyKey>,
    ) -> Pending<Created> {
        either!(self, database => database.create_within(within, link, key))
    }

    /// Creates many links in one transaction, at the domains `within` as in [`create_within`](Self::create_within).
    /// Each succeeds or fails separately.
    pub fn create_many(&self, within: &InDomains, links: Vec<NewLink>) -> Pending<Vec<Result<Link, Error>>> {
        either!(self, database => database.create_many(within, links))
    }

    /// Applies a merge patch.
    pub fn edit(&self, key: impl Into<LinkKey>, patch: LinkPatch) -> Pending<Link> {
        either!(self, database => database.edit(key, patch))
    }

    /// Applies a merge patch if the link is `expected`; otherwise fails with [`Error::Changed`].
    pub fn edit_if(
        &self,
        key: impl Into<LinkKey>,
        patch: LinkPatch,
        expected: impl FnOnce(&Link) -> bool + Send + 'static,
    ) -> Pending<Link> {
        either!(self, database => database.edit_if(key, patch, expected))
    }

    /// Applies the same change to many links in one transaction; each succeeds or fails separately. Calls `see` with
    /// each link before and after the change, and returns the results. No link is kept, since ten thousand names may
    /// be of one long link. Hashes a password on the calling thread.
    pub fn edit_many<T: Send + 'static>(
        &self,
        keys: Vec<LinkKey>,
        patch: ManyPatch,
        see: impl Fn(&Link, &Link) -> T + Send + Sync + 'static,
    ) -> Pending<Vec<Result<T, Error>>> {
        either!(self, database => database.edit_many(keys, patch, see))
    }

    /// Deletes a link and its clicks.
    pub fn delete(&self, key: impl Into<LinkKey>) -> Pending<()> {
        either!(self, database => database.delete(key))
    }

    /// Deletes a link if it is `expected`; otherwise fails with [`Error::Changed`].
    pub fn delete_if(
        &self,
        key: impl Into<LinkKey>,
        expected: impl FnOnce(&Link) -> bool + Send + 'static,
    ) -> Pending<()> {
        either!(self, database => database.delete_if(key, expected))
    }

    /// Deletes many links in one transaction. Each succeeds or fails separately.
    pub fn delete_many(&self, keys: Vec<impl Into<LinkKey>>) -> Pending<Vec<Result<(), Error>>> {
        either!(self, database => database.delete_many(keys))
    }

    /// Like [`delete_many`](Self::delete_many), but calls `see` with each link before it is deleted, and returns the
    /// results.
    pub fn delete_many_seen<T: Send + 'static>(
        &self,
        keys: Vec<LinkKey>,
        see: impl Fn(&Link) -> T + Send + 'static,
    ) -> Pending<Vec<Result<T, Error>>> {
        either!(self, database => database.delete_many_seen(keys, see))
    }

    /// Imports a batch of rows in one transaction, at the domains `within` as in
    /// [`create_within`](Self::create_within). Each succeeds or fails separately. Checks them on the calling thread. If
    /// the import `is_over` before the transaction begins, nothing is stored.
    pub fn import(
        &self,
        batch: Vec<Record>,
        on_conflict: OnConflict,
        within: &InDomains,
        is_over: &Arc<AtomicBool>,
    ) -> Pending<Tally> {
        either!(self, database => database.import(batch, on_conflict, within, is_over))
    }

    /// Adds a worker's clicks. Clicks of deleted links are dropped. Keep the batch until the answer: if it is an error,
    /// nothing was counted.
    pub fn count(&self, batch: Arc<ClickBatch>) -> Pending<()> {
        either!(self, database => database.count(batch))
    }

    /// Merges each link's days of clicks before day `before` (since the Unix epoch) into one. One call merges a small
    /// part, from link `from` on. It returns where to continue, or `None` once all are done or another node does the
    /// rest. Sums do not change, even if the rest is never merged.
    pub fn fold_days(&self, before: i32, from: FoldCursor) -> Pending<Option<FoldCursor>> {
        either!(self, database => database.fold_days(before, from))
    }

    /// Deletes clicks by hour before hour `before` (since the Unix epoch), a small part per call as in
    /// [`fold_days`](Self::fold_days). All other sums keep these clicks.
    pub fn forget_hours(&self, before: i32, from: FoldCursor) -> Pending<Option<FoldCursor>> {
        either!(self, database => database.forget_hours(before, from))
    }

    /// Creates a token for all domains that does not expire. Its secret is only in the answer.
    pub fn create_token(&self, name: String, scope: Scope) -> Pending<(TokenInfo, String)> {
        self.create_token_as(NewToken { name, scope, domains: None, expires_at: None })
    }

    /// Creates a token.
    pub fn create_token_as(&self, new: NewToken) -> Pending<(TokenInfo, String)> {
        either!(self, database => database.create_token(new))
    }

    /// Records a use of this grant's token, unless one was recorded within the last minute. The write runs in the
    /// background, so no request waits for it. If it fails, the next use is recorded.
    pub fn note_use(&self, grant: &Grant) {
        let now = Timestamp::now();
        if let Some(id) = grant.id.filter(|_| tokens::is_noted(grant.last_used_at, now)) {
            drop(either!(self, database => database.token_used(id, now)));
        }
    }

    /// Revokes a token.
    pub fn revoke_token(&self, id: i64) -> Pending<()> {
        either!(self, database => database.revoke_token(id))
    }

    /// Whether it accepts writes. A read-only file does not.
    pub fn is_writable(&self) -> bool {
        match &self.0 {
            Database::Sqlite(sqlite) => sqlite.is_writable(),
            Database::Postgres(_) => true,
        }
    }

    /// How many jobs wait for the writer.
    pub fn depth(&self) -> usize {
        either!(self, database => database.depth())
    }

    /// Starts to watch the writer. It counts as stuck if one transaction takes `stuck`.
    pub fn watch(&self, stuck: Duration) -> Liveness {
        either!(self, database => database.watch(stuck))
    }

    /// Whether the writer has ended, by being closed or by a panic.
    pub fn has_ended(&self) -> bool {
        either!(self, database => database.has_ended())
    }

    /// Commits waiting jobs, checkpoints, and stops the writer. Later writes fail with [`Error::Closed`].
    pub fn close(&self) {
        either!(self, database => database.close())
    }

    /// Copies everything from a consistent snapshot into an empty database, while this one is in use. Calls `on_rows`
    /// with the table being written, how many of its rows are written, and their total. Blocks, so do not call it on an
    /// async thread. This process must not serve the other database, since the caches do not learn of the copy.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::Differs`], or a failure of either database. The other database is then unchanged.
    pub fn migrate(
        &self,
        to: &Self,
        on_rows: &mut dyn FnMut(&'static str, u64, u64),
    ) -> Result<Migrated, Error> {
        let tables = either!(self, from => from.snapshot(|from| {
            either!(to, to => to.fill(|into| database_copy::copy(from, into, on_rows)))
        }))?;
        let written_since =
            either!(self, from => from.snapshot(|from| database_copy::written_since(from, &tables)))?;
        Ok(Migrated { tables, written_since })
    }

    /// Opens a read connection.
    ///
    /// # Errors
    /// When the database cannot be opened.
    pub fn reader(&self) -> Result<Reader, Error> {
        Ok(Reader(match &self.0 {
            Database::Sqlite(sqlite) => Source::Sqlite(Box::new(sqlite.reader()?)),
            Database::Postgres(postgres) => Source::Postgres(Arc::clone(postgres)),
        }))
    }
}

/// A read connection. It blocks the calling thread, and is `Send` but not `Sync`.
pub struct Reader(Source);

/// Opens a file for reading alone. Its schema remains as it is, so that an older release may still use it.
///
/// # Errors
/// When it cannot be opened.
pub fn open_reader(path: &Path) -> Result<Reader, Error> {
    Ok(Reader(Source::Sqlite(Box::new(sqlite::Reader::of_a_file(path)?))))
}

enum Source {
    Sqlite(Box<sqlite::Reader>),
    Postgres(Arc<postgres::Postgres>),
}

impl Reader {
    /// The data of a redirect, by code.
    ///
    /// # Errors
    /// [`Error::Remote`] if the database is a server, for which [`Store::remote`] waits.
    pub fn route(&self, code: &str) -> Result<Option<Route>, Error> {
        self.route_at(DomainId::DEFAULT, code)
    }

    /// Like [`route`](Self::route), at a domain.
    ///
    /// # Errors
    /// As [`Reader::route`].
    pub fn route_at(&self, domain: DomainId, code: &str) -> Result<Option<Route>, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.route_at(domain, code),
            Source::Postgres(_) => Err(Error::Remote),
        }
    }

    /// Releases the snapshot that [`Reader::route`] holds.
    ///
    /// # Errors
    /// When the database fails.
    pub fn release(&self) -> Result<(), Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.release(),
            Source::Postgres(_) => Ok(()),
        }
    }

    /// A link by code.
    ///
    /// # Errors
    /// When there is none, or the database fails.
    pub fn get(&self, key: impl Into<LinkKey>) -> Result<Link, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.get(key),
            Source::Postgres(postgres) => postgres.get(key.into()).wait(),
        }
    }

    /// A page of links. It contains what is found within [`ListQuery::within`].
    ///
    /// # Errors
    /// When the query is wrong, or the database fails.
    pub fn list(&self, query: &ListQuery) -> Result<Page, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.list(query),
            Source::Postgres(postgres) => postgres.list(query.clone()).wait(),
        }
    }

    /// How many links of these domains an export without hashes disables: the active ones with a password.
    ///
    /// # Errors
    /// When the database fails.
    pub fn locked(&self, of: &InDomains) -> Result<u64, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.locked(of),
            Source::Postgres(postgres) => postgres.locked(of.clone()).wait(),
        }
    }

    /// Passes all links of these domains to `visit`, by id, in constant memory, until it returns false. Each link is
    /// passed once, as it was when it was read. Links that are created meanwhile are not seen. Without `hashes`, links
    /// with a password are passed as disabled.
    ///
    /// # Errors
    /// When the database fails.
    pub fn export(
        &self,
        of: &InDomains,
        hashes: bool,
        visit: &mut dyn FnMut(Record) -> bool,
    ) -> Result<(), Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.export(of, hashes, visit),
            Source::Postgres(postgres) => postgres.export(of, hashes, visit),
        }
    }

    /// The number of links.
    ///
    /// # Errors
    /// When the database fails.
    pub fn len(&self) -> Result<u64, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.len(),
            Source::Postgres(postgres) => postgres.len().wait(),
        }
    }

    /// Whether there is no link.
    ///
    /// # Errors
    /// When the database fails.
    pub fn is_empty(&self) -> Result<bool, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.is_empty(),
            Source::Postgres(postgres) => Ok(postgres.len().wait()? == 0),
        }
    }

    /// Clicks of one link, of all links, or of some domains, on these days since the Unix epoch. Fails with
    /// [`Error::TooSlow`] after 5 s.
    ///
    /// # Errors
    /// When there is no such link, or the database fails.
    pub fn stats(&self, of: impl Into<StatsScope>, days: RangeInclusive<i32>) -> Result<Stats, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.stats(of, days),
            Source::Postgres(postgres) => postgres.stats(of.into(), days).wait(),
        }
    }

    /// Clicks by hour of one link, of all links, or of some domains, in these hours since the Unix epoch. Hours that
    /// are no longer kept are missing. Fails with [`Error::TooSlow`] after 5 s.
    ///
    /// # Errors
    /// When there is no such link, or the database fails.
    pub fn hours(
        &self,
        of: impl Into<StatsScope>,
        hours: RangeInclusive<i32>,
    ) -> Result<Vec<TimeCount>, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.hours(of, hours),
            Source::Postgres(postgres) => postgres.hours(of.into(), hours).wait(),
        }
    }

    /// The results of [`stats`](Self::stats) and [`hours`](Self::hours) for these days, in one.
    ///
    /// # Errors
    /// The errors of both.
    pub fn stats_by_hour(&self, of: StatsScope, days: RangeInclusive<i32>) -> Result<Stats, Error> {
        let hour = |day: i32| day.saturating_mul(HOURS);
        let hours = hour(*days.start())..=hour(*days.end()).saturating_add(HOURS - 1);
        Ok(Stats { hours: self.hours(of.clone(), hours)?, ..self.stats(of, days)? })
    }

    /// Whether a text has the form of a token. Other texts need no look-up.
    pub fn could_be_token(secret: &str) -> bool {
        tokens::has_form(secret)
    }

    /// The rights of a token, by its secret, compared in constant time.
    ///
    /// # Errors
    /// When the database fails.
    pub fn authorize(&self, secret: &str) -> Result<Option<Grant>, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.authorize(secret),
            Source::Postgres(postgres) => postgres.authorize(secret.to_owned()).wait(),
        }
    }

    /// The tokens, without their secrets.
    ///
    /// # Errors
    /// When the database fails.
    pub fn tokens(&self) -> Result<Vec<TokenInfo>, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.tokens(),
            Source::Postgres(postgres) => postgres.tokens().wait(),
        }
    }

    /// Copies the current database while it is in use (SQLite's online backup). An existing database is replaced; other
    /// files, and the database itself, are refused.
    ///
    /// # Errors
    /// [`Error::OnlyFiles`] if it is not a file, or when it cannot be copied.
    pub fn backup(&self, to: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.backup(to, progress),
            Source::Postgres(_) => Err(Error::OnlyFiles),
        }
    }

    /// Runs SQLite's integrity and foreign key checks. Returns their findings, empty if it is sound.
    ///
    /// # Errors
    /// [`Error::OnlyFiles`] if it is not a file, or when it cannot be checked.
    pub fn check(&self) -> Result<Vec<String>, Error> {
        match &self.0 {
            Source::Sqlite(reader) => reader.check(),
            Source::Postgres(_) => Err(Error::OnlyFiles),
        }
    }
}
