//! A read connection.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::backup::Backup;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use crate::domains::{DomainId, InDomains, LinkKey};
use crate::link::{Link, NewLink, Status};
use crate::when::Timestamp;

use super::tables::scope::Links;
use super::tables::{clicks, hours, in_domains, links, list, tokens};
use super::{connection, schema};
use crate::store::rules::links::{redirect_of, status_of};
use crate::store::{
    Error, Grant, ListQuery, Page, Progress, Record, Route, Stats, StatsScope, TimeCount, TokenInfo,
};

/// Pages per step of a backup: 4 MiB at a time.
const BACKUP_PAGES: i32 = 1_024;

/// Links per page of an export: at most some 4 MiB.
const EXPORT_LINKS: usize = 500;

/// How long a list or a sum of clicks may take.
const QUERY_TIME: Duration = Duration::from_secs(5);

/// How many steps of SQLite's virtual machine pass between two checks of the clock: some 0.1 ms.
const STEPS_PER_LOOK: i32 = 10_000;

/// A read connection; `Send`, not `Sync`.
pub struct Reader {
    connection: Connection,
    /// The time at which the running query is interrupted.
    deadline: Arc<Mutex<Option<Instant>>>,
    /// The number of commits by the store's writer, and by other processes as far as the writer knows them.
    commits: Arc<AtomicU64>,
    /// The commit of the snapshot that [`Reader::route_at`] holds, if it holds one.
    held: Cell<Option<u64>>,
}

impl Reader {
    /// Opens a file that this process does not write.
    pub(in crate::store) fn of_a_file(path: &Path) -> Result<Self, Error> {
        Self::open(path, Arc::default())
    }

    pub(super) fn open(path: &Path, commits: Arc<AtomicU64>) -> Result<Self, Error> {
        let connection = connection::reader(path)?;
        let deadline = Arc::new(Mutex::new(None));
        let watched = Arc::clone(&deadline);
        let is_over = move || {
            let deadline: Option<Instant> = *watched.lock().unwrap_or_else(PoisonError::into_inner);
            deadline.is_some_and(|deadline| Instant::now() > deadline)
        };
        connection.progress_handler(STEPS_PER_LOOK, Some(is_over))?;
        Ok(Self { connection, deadline, commits, held: Cell::new(None) })
    }

    /// The data of a redirect, by code at the default domain.
    #[cfg(test)]
    pub fn route(&self, code: &str) -> Result<Option<Route>, Error> {
        self.route_at(DomainId::DEFAULT, code)
    }

    /// The data of a redirect, by code at a domain.
    ///
    /// Stays in one read transaction until the next commit, which saves locking the log for each call. Call
    /// [`Reader::release`] now and then, since the log must keep what a snapshot needs.
    pub fn route_at(&self, domain: DomainId, code: &str) -> Result<Option<Route>, Error> {
        let commits = self.commits.load(Ordering::Acquire);
        if self.held.get() != Some(commits) {
            self.release()?;
            self.connection.prepare_cached("BEGIN")?.execute([])?;
            self.held.set(Some(commits));
        }
        let mut statement = self.connection.prepare_cached(
            "SELECT id, target, status, redirect, forward_query, not_before, expires_at, max_clicks, \
             iif(max_clicks IS NULL, 0, (SELECT clicks FROM totals WHERE link = id)), \
             password_hash FROM links WHERE domain = ?1 AND code = ?2",
        )?;
        let route = statement.query_row(params![domain.0, code], |row| {
            Ok(Route {
                id: row.get(0)?,
                target: row.get(1)?,
                status: status_of(row.get(2)?),
                redirect: redirect_of(row.get(3)?),
                forward_query: row.get(4)?,
                not_before: row.get::<_, Option<i64>>(5)?.map(Timestamp),
                expires_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
                max_clicks: row.get(7)?,
                clicks: row.get::<_, Option<u64>>(8)?.unwrap_or(0),
                password_hash: row.get(9)?,
            })
        });
        Ok(route.optional()?)
    }

    /// Releases the snapshot that [`Reader::route_at`] holds.
    pub fn release(&self) -> Result<(), Error> {
        if self.held.take().is_some() && !self.connection.is_autocommit() {
            self.connection.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }

    /// The connection, reading from the last commit instead of the snapshot that [`Reader::route_at`] holds.
    fn latest(&self) -> Result<&Connection, Error> {
        self.release()?;
        Ok(&self.connection)
    }

    /// A link by code.
    pub fn get(&self, key: impl Into<LinkKey>) -> Result<Link, Error> {
        links::get(self.latest()?, &key.into())
    }

    /// A page of links. It contains what is found within [`ListQuery::within`].
    pub fn list(&self, query: &ListQuery) -> Result<Page, Error> {
        self.in_time(|connection| list::list(connection, query))
    }

    fn in_time<T>(&self, query: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let connection = self.latest()?;
        self.set_deadline(Some(Instant::now() + QUERY_TIME));
        let answer = query(connection);
        self.set_deadline(None);
        answer
    }

    fn set_deadline(&self, deadline: Option<Instant>) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    /// How many links of these domains an export without hashes disables: the active ones with a password.
    pub fn locked(&self, of: &InDomains) -> Result<u64, Error> {
        let there =
            in_domains::condition(of).map_or_else(String::new, |condition| format!("AND {condition}"));
        let sql =
            format!("SELECT count(*) FROM links WHERE password_hash IS NOT NULL AND status = 0 {there}");
        Ok(self.latest()?.prepare_cached(&sql)?.query_row([], |row| row.get(0))?)
    }

    /// Passes all links of these domains to `visit`, by id, in constant memory, until it returns false. Each link is
    /// passed once, as it was when its page was read. Links that are created meanwhile are not seen. Without `hashes`,
    /// links with a password are passed as disabled.
    pub fn export(
        &self,
        of: &InDomains,
        hashes: bool,
        visit: &mut dyn FnMut(Record) -> bool,
    ) -> Result<(), Error> {
        let there =
            in_domains::condition(of).map_or_else(String::new, |condition| format!("AND {condition}"));
        let sql = format!(
            "SELECT {}, password_hash FROM links WHERE id > ?1 AND id <= ?2 {there} ORDER BY id LIMIT ?3",
            links::COLUMNS
        );
        let newest: i64 =
            self.latest()?.query_row("SELECT ifnull(max(id), 0) FROM links", [], |row| row.get(0))?;
        let mut last = 0;
        loop {
            // `visit` waits for a client, so a page's snapshot ends before it: the log must keep what a snapshot needs.
            let page: Vec<(Link, Option<String>)> = self
                .latest()?
                .prepare_cached(&sql)?
                .query_map(params![last, newest, EXPORT_LINKS], |row| {
                    Ok((links::link_of(row)?, row.get("password_hash")?))
                })?
                .collect::<Result<_, _>>()?;
            let Some((link, _)) = page.last() else { return Ok(()) };
            last = link.id;
            for (link, password_hash) in page {
                if !visit(record_of(link, password_hash, hashes)) {
                    return Ok(());
                }
            }
        }
    }

    /// The number of links.
    pub fn len(&self) -> Result<u64, Error> {
        Ok(self.latest()?.prepare_cached("SELECT count(*) FROM links")?.query_row([], |row| row.get(0))?)
    }

    /// Whether there is no link.
    pub fn is_empty(&self) -> Result<bool, Error> {
        let any = self.latest()?.prepare_cached("SELECT 1 FROM links LIMIT 1")?.exists([])?;
        Ok(!any)
    }

    /// Clicks of one link, of all links, or of some domains, on these days since the Unix epoch. Fails with
    /// [`Error::TooSlow`] after 5 s.
    pub fn stats(&self, of: impl Into<StatsScope>, days: RangeInclusive<i32>) -> Result<Stats, Error> {
        let links = self.counted(of.into())?;
        self.in_time(|connection| clicks::stats(connection, &links, &days))
    }

    /// Like [`stats`](Self::stats), by hour. Hours that are no longer kept are missing.
    pub fn hours(
        &self,
        of: impl Into<StatsScope>,
        hours: RangeInclusive<i32>,
    ) -> Result<Vec<TimeCount>, Error> {
        let links = self.counted(of.into())?;
        self.in_time(|connection| hours::sums(connection, &links, &hours))
    }

    /// The links whose clicks are summed.
    fn counted(&self, of: StatsScope) -> Result<Links, Error> {
        Ok(match of {
            StatsScope::Link(key) => Links::One(self.get(key)?.id),
            StatsScope::All => Links::All,
            StatsScope::Domains(domains) => Links::At(InDomains::Only(domains)),
        })
    }

    /// The rights of a token, by its secret, compared in constant time.
    pub fn authorize(&self, secret: &str) -> Result<Option<Grant>, Error> {
        tokens::authorize(self.latest()?, secret)
    }

    /// The tokens, without their secrets.
    pub fn tokens(&self) -> Result<Vec<TokenInfo>, Error> {
        tokens::list(self.latest()?)
    }

    /// Copies the current database while it is in use (SQLite's online backup). An existing database is replaced; other
    /// files, and the database itself, are refused.
    pub fn backup(&self, to: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let own = self.connection.path().and_then(|path| std::fs::canonicalize(path).ok());
        if own.is_some() && own == std::fs::canonicalize(to).ok() {
            return Err(Error::field("to", "a database cannot be its own backup"));
        }
        // Without a snapshot, each commit would restart the copy.
        let snapshot = self.latest()?.unchecked_transaction()?;
        schema::is_current(&snapshot)?;
        let mut copy = Connection::open(connection::absolute(to)?)?;
        copy.busy_timeout(connection::BUSY_TIMEOUT)?;
        let backup = Backup::new(&self.connection, &mut copy)?;
        loop {
            let step = backup.step(BACKUP_PAGES)?;
            let now = backup.progress();
            let total = u64::try_from(now.pagecount).unwrap_or(0);
            progress(Progress {
                done: total.saturating_sub(u64::try_from(now.remaining).unwrap_or(0)),
                total,
            });
            match step {
                rusqlite::backup::StepResult::Done => return Ok(()),
                rusqlite::backup::StepResult::More => {}
                // Another process uses the copy.
                _ => return Err(Error::Busy),
            }
        }
    }

    /// Runs SQLite's integrity and foreign key checks. Returns their findings, empty if it is sound.
    pub fn check(&self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        match self.check_into(&mut found) {
            // The damage stops the checks themselves.
            Err(Error::Sqlite(error)) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
                found.push(error.to_string());
            }
            Err(error @ Error::NotADatabase) => found.push(error.to_string()),
            checked => checked?,
        }
        Ok(found)
    }

    fn check_into(&self, found: &mut Vec<String>) -> Result<(), Error> {
        let connection = self.latest()?;
        let mut statement = connection.prepare("PRAGMA integrity_check")?;
        for line in statement.query_map([], |row| row.get::<_, String>(0))? {
            found.push(line?);
        }
        found.retain(|line| line != "ok");
        let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
        let rows = statement.query_map([], |row| {
            Ok(format!("{} of {} refers to nothing", row.get::<_, i64>(1)?, row.get::<_, String>(0)?))
        })?;
        for line in rows {
            found.push(line?);
        }
        Ok(())
    }
}

/// A link as it is exported.
fn record_of(link: Link, password_hash: Option<String>, hashes: bool) -> Record {
    // A link with a password must not become public.
    let status = if link.protected && !hashes { Status::Disabled } else { link.status };
    Record {
        link: NewLink {
            domain: link.domain,
            code: Some(link.code),
            target: link.target,
            title: link.title,
            tags: link.tags,
            status,
            redirect: link.redirect,
            forward_query: link.forward_query,
            password: None,
            not_before: link.not_before,
            expires_at: link.expires_at,
            max_clicks: link.max_clicks,
        },
        created_at: Some(link.created_at),
        clicks: link.clicks,
        password_hash: password_hash.filter(|_| hashes),
    }
}
