//! Reads, creates, edits and deletes links, each with the given pool.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use postgres::{Pool, Row, Session, Transaction};

use crate::code::{self, CodePolicy};
use crate::domains::{DomainId, LinkKey};
use crate::link::Link;
use crate::store::draft::{Draft, Edit};
use crate::store::rules::links::{DRAWS, KEY_SECONDS, end_of, number_of, redirect_of, status_of};
use crate::store::{Created, Error, IdempotencyKey};
use crate::when::Timestamp;

use super::limits;
use crate::store::postgres::values::{count, integer, values};

/// The columns for [`link_of`]; `l` is the table of links.
pub const SELECT: &str = "SELECT l.id, l.code, l.target, l.title, l.tags, l.status, l.redirect, l.forward_query, \
    right(l.password_hash, 16), l.not_before, l.expires_at, l.max_clicks, coalesce(t.clicks, 0), l.created_at, \
    l.updated_at, l.domain, d.host FROM links l LEFT JOIN totals t ON t.link = l.id \
    LEFT JOIN domains d ON d.id = l.named_domain";

/// Whether a statement failed because a domain no longer exists, or still has links.
pub fn is_referred(error: &postgres::Error) -> bool {
    matches!(error, postgres::Error::Query(error) if error.code().is_some_and(|code| code.code() == "23503"))
}

/// The link of a row of [`SELECT`].
pub fn link_of(row: &Row) -> Result<Link, Error> {
    let password_end: Option<String> = row.try_get(8)?;
    Ok(Link {
        id: row.try_get(0)?,
        code: row.try_get(1)?,
        target: row.try_get(2)?,
        title: row.try_get(3)?,
        tags: row.try_get(4)?,
        status: status_of(row.try_get::<_, i16>(5)?.into()),
        redirect: redirect_of(row.try_get::<_, i16>(6)?.unsigned_abs()),
        forward_query: row.try_get(7)?,
        protected: password_end.is_some(),
        password_end,
        not_before: row.try_get::<_, Option<i64>>(9)?.map(Timestamp),
        expires_at: row.try_get::<_, Option<i64>>(10)?.map(Timestamp),
        max_clicks: row.try_get::<_, Option<i64>>(11)?.map(count),
        clicks: count(row.try_get(12)?),
        created_at: Timestamp(row.try_get(13)?),
        updated_at: Timestamp(row.try_get(14)?),
        domain_id: DomainId(row.try_get(15)?),
        domain: row.try_get(16)?,
    })
}

async fn find(session: &Session, key: &LinkKey, lock: &str) -> Result<Link, Error> {
    // A text that is not a code has no row. It may also be invalid for PostgreSQL.
    if code::is_well_formed(&key.code) {
        let sql = format!("{SELECT} WHERE l.domain = $1 AND l.code = $2 {lock}");
        let rows = session.query(&sql, values![key.domain.0 => INT8, key.code => TEXT]).await?;
        if let Some(row) = rows.first() {
            return link_of(row);
        }
    }
    Err(Error::NotFound(key.code.clone()))
}

pub async fn get(pool: &Pool, key: &LinkKey) -> Result<Link, Error> {
    find(&*pool.get().await?, key, "").await
}

/// Inserts under the draft's code, or under the first free random one. The insert is a single statement, so it is
/// complete even without a transaction.
async fn insert(session: &Session, policy: &CodePolicy, draft: Draft) -> Result<Link, Error> {
    if let Some(code) = draft.code.clone() {
        return match try_insert(session, &draft, &code).await? {
            Some(id) => Ok(draft.into_link(id, code)),
            None => Err(Error::Taken(code)),
        };
    }
    for length in policy.length..=code::MAX_BYTES {
        for _ in 0..DRAWS {
            let code = policy.random(length);
            // A random code may be a reserved word.
            if policy.validate(&code).is_ok()
                && let Some(id) = try_insert(session, &draft, &code).await?
            {
                return Ok(draft.into_link(id, code));
            }
        }
    }
    Err(Error::field("code", "no free code was found"))
}

/// Returns the new id; `None` if the code is taken.
async fn try_insert(session: &Session, draft: &Draft, code: &str) -> Result<Option<i64>, Error> {
    let sql = "INSERT INTO links (domain, code, target, title, tags, status, redirect, forward_query, password_hash, \
         not_before, expires_at, max_clicks, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13) \
         ON CONFLICT (domain, code) DO NOTHING RETURNING id";
    let values = values![
        draft.domain_id().0 => INT8, code => TEXT, draft.target => TEXT, draft.title => TEXT,
        draft.tags => TEXT_ARRAY, number_of(draft.status) as i16 => INT2, redirect(draft.redirect.code()) => INT2,
        draft.forward_query => BOOL, draft.password_hash => TEXT, draft.not_before.map(|at| at.0) => INT8,
        draft.expires_at.map(|at| at.0) => INT8, draft.max_clicks.map(integer) => INT8,
        draft.created_at.0 => INT8,
    ];
    match session.query(sql, values).await {
        Ok(rows) => Ok(rows.first().map(|row| row.try_get(0)).transpose()?),
        Err(error) if is_referred(&error) => {
            let host = draft.domain.as_ref().map_or_else(String::new, |domain| domain.host.clone());
            Err(Error::NoDomain(host))
        }
        Err(error) => Err(error.into()),
    }
}

/// A redirect's status as it is stored.
pub fn redirect(code: u16) -> i16 {
    i16::try_from(code).unwrap_or(302)
}

pub async fn create(
    pool: &Pool,
    policy: &CodePolicy,
    draft: Draft,
    key: Option<&IdempotencyKey>,
) -> Result<Created, Error> {
    let session = pool.get().await?;
    let Some(key) = key else {
        return Ok(Created { link: insert(&session, policy, draft).await?, replayed: false });
    };
    let transaction = session.begin().await?;
    match create_once(&transaction, policy, draft, key).await {
        Ok(created) => {
            transaction.commit().await?;
            Ok(created)
        }
        Err(error) => {
            transaction.rollback().await?;
            Err(error)
        }
    }
}

async fn create_once(
    transaction: &Transaction<'_>,
    policy: &CodePolicy,
    draft: Draft,
    key: &IdempotencyKey,
) -> Result<Created, Error> {
    let now = Timestamp::now().0;
    // Another node may run the same request.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('linerate-links key ' || $1, 0))";
    transaction.query(lock, values![key.key => TEXT]).await?;
    let forget = "DELETE FROM idempotency WHERE key IN \
         (SELECT key FROM idempotency WHERE created_at < $1 LIMIT 100 FOR UPDATE SKIP LOCKED)";
    transaction.execute(forget, values![now - KEY_SECONDS => INT8]).await?;
    let sql = "SELECT request, link FROM idempotency WHERE key = $1 AND created_at >= $2";
    let known = transaction.query(sql, values![key.key => TEXT, now - KEY_SECONDS => INT8]).await?;
    if let Some(row) = known.first() {
        let (request, id): (&[u8], i64) = (row.try_get(0)?, row.try_get(1)?);
        if request != key.request {
            return Err(Error::KeyReused);
        }
        let rows = transaction.query(&format!("{SELECT} WHERE l.id = $1"), values![id => INT8]).await?;
        // If the link was deleted, its key is free again.
        if let Some(row) = rows.first() {
            return Ok(Created { link: link_of(row)?, replayed: true });
        }
    }
    let link = insert(transaction, policy, draft).await?;
    let note = "INSERT INTO idempotency (key, request, link, created_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (key) DO UPDATE SET request = excluded.request, link = excluded.link, \
         created_at = excluded.created_at";
    let values = values![key.key => TEXT, &key.request[..] => BYTEA, link.id => INT8, now => INT8];
    transaction.execute(note, values).await?;
    Ok(Created { link, replayed: false })
}

pub async fn create_many(
    pool: &Pool,
    policy: &CodePolicy,
    drafts: Vec<Result<Draft, Error>>,
) -> Result<Vec<Result<Link, Error>>, Error> {
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    let mut outcomes = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let created = match draft {
            Ok(draft) => insert(&transaction, policy, draft).await,
            Err(error) => Err(error),
        };
        match created {
            Err(error) if ends_transaction(&error) => {
                transaction.rollback().await?;
                return Err(error);
            }
            created => outcomes.push(created),
        }
    }
    transaction.commit().await?;
    Ok(outcomes)
}

/// Whether an error means that the transaction is lost.
fn ends_transaction(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreachable(_) | Error::Postgres(_) | Error::Busy | Error::Full | Error::NoDomain(_)
    )
}

/// How many statements of a batch are sent before waiting for the first answer.
const PIPELINED: usize = 64;

/// How many links of a batch are held at once. The texts of ten thousand take up to 80 MB, twice.
const HELD: usize = 256;

/// What became of an edit of many links.
pub struct Edited<T> {
    /// The result of each key.
    pub outcomes: Vec<Result<T, Error>>,
    /// The links that were named, each once.
    pub named: Vec<LinkKey>,
}

/// Applies the same change to many links. Each succeeds or fails separately. Calls `see` with each link before and
/// after the change, and returns the results.
pub async fn edit_many<T: Send>(
    pool: &Pool,
    keys: &[LinkKey],
    edit: Edit,
    see: impl Fn(&Link, &Link) -> T + Send + Sync,
) -> Result<Edited<T>, Error> {
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    let locked = lock_many(&transaction, keys).await?;
    let mut outcomes = Vec::with_capacity(keys.len());
    for some in keys.chunks(HELD) {
        let found = read_locked(&transaction, some, &locked).await?;
        outcomes.extend(edit_found(&transaction, some, found, &edit, &see).await?);
    }
    transaction.commit().await?;
    Ok(Edited { outcomes, named: locked.into_keys().collect() })
}

/// Edits links that were found under these keys.
async fn edit_found<T: Send>(
    transaction: &Transaction<'_>,
    keys: &[LinkKey],
    mut found: HashMap<LinkKey, Link>,
    edit: &Edit,
    see: &(impl Fn(&Link, &Link) -> T + Send + Sync),
) -> Result<Vec<Result<T, Error>>, Error> {
    // A link that is named twice is written once, in its final state.
    let mut changes: HashMap<&LinkKey, Change> = HashMap::new();
    let changed = keys.iter().map(|key| {
        let link = found.get_mut(key).ok_or_else(|| Error::NotFound(key.code.clone()))?;
        let mut edited = link.clone();
        let change = Change::apply(edit.clone(), &mut edited)?;
        let seen = see(link, &edited);
        *link = edited;
        let change = match changes.remove(key) {
            Some(before) => before.and(change),
            None => change,
        };
        changes.insert(key, change);
        Ok(seen)
    });
    let outcomes = changed.collect();
    let mut changes = changes.iter().map(|(key, change)| (&found[*key], change));
    // The first statement is prepared for all the others.
    if let Some((link, change)) = changes.next() {
        change.write(transaction, link).await?;
    }
    let mut under_way = FuturesUnordered::new();
    for (link, change) in changes {
        if under_way.len() == PIPELINED {
            under_way.try_next().await?;
        }
        under_way.push(change.write(transaction, link));
    }
    while under_way.try_next().await?.is_some() {}
    drop(under_way);
    Ok(outcomes)
}

/// Locks the existing links of many keys. Returns their ids.
async fn lock_many(transaction: &Transaction<'_>, keys: &[LinkKey]) -> Result<HashMap<LinkKey, i64>, Error> {
    let (domains, codes) = columns(keys);
    // In a fixed order, so that two transactions never deadlock.
    let sql = "SELECT l.id, l.domain, l.code FROM links l \
         WHERE (l.domain, l.code) IN (SELECT * FROM unnest($1::int8[], $2::text[])) ORDER BY l.id FOR UPDATE OF l";
    let rows = transaction.query(sql, values![domains => INT8_ARRAY, codes => TEXT_ARRAY]).await?;
    let keyed = |row: &Row| {
        let key = LinkKey { domain: DomainId(row.try_get(1)?), code: row.try_get(2)? };
        Ok((key, row.try_get(0)?))
    };
    rows.iter().map(keyed).collect()
}

/// Reads the links of some of the keys that are `locked`.
async fn read_locked(
    transaction: &Transaction<'_>,
    keys: &[LinkKey],
    locked: &HashMap<LinkKey, i64>,
) -> Result<HashMap<LinkKey, Link>, Error> {
    let ids: Vec<i64> = keys.iter().filter_map(|key| locked.get(key).copied()).collect();
    let sql = format!("{SELECT} WHERE l.id = ANY($1)");
    let rows = transaction.query(&sql, values![ids => INT8_ARRAY]).await?;
    let keyed = |row| {
        let link = link_of(row)?;
        Ok((LinkKey { domain: link.domain_id, code: link.code.clone() }, link))
    };
    rows.iter().map(keyed).collect()
}

/// Keys, column by column. Texts that are not codes are left out, since they have no row.
fn columns(keys: &[LinkKey]) -> (Vec<i64>, Vec<&str>) {
    let code = |key: &'_ LinkKey| code::is_well_formed(&key.code);
    let codes = keys.iter().map(|key| if code(key) { &*key.code } else { "" });
    (keys.iter().map(|key| key.domain.0).collect(), codes.collect())
}

pub async fn edit(
    pool: &Pool,
    key: &LinkKey,
    edit: Edit,
    expected: impl FnOnce(&Link) -> bool + Send,
) -> Result<Link, Error> {
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    match edit_within(&transaction, key, edit, expected).await {
        Ok(link) => {
            transaction.commit().await?;
            Ok(link)
        }
        Err(error) => {
            transaction.rollback().await?;
            Err(error)
        }
    }
}

async fn edit_within(
    transaction: &Transaction<'_>,
    key: &LinkKey,
    edit: Edit,
    expected: impl FnOnce(&Link) -> bool + Send,
) -> Result<Link, Error> {
    let mut link = find(transaction, key, "FOR UPDATE OF l").await?;
    if !expected(&link) {
        return Err(Error::Changed);
    }
    Change::apply(edit, &mut link)?.write(transaction, &link).await?;
    Ok(link)
}

/// What an edit changes besides the link's own fields.
struct Change {
    /// The new password hash, if it changes.
    password: Option<Option<String>>,
    /// Whether the link gets its first click limit.
    begins_limit: bool,
}

impl Change {
    /// Applies an edit.
    fn apply(edit: Edit, link: &mut Link) -> Result<Self, Error> {
        let had_limit = link.max_clicks.is_some();
        let password = edit.apply(link)?;
        if let Some(password) = &password {
            link.protected = password.is_some();
            link.password_end = password.as_deref().map(end_of);
        }
        Ok(Self { password, begins_limit: !had_limit && link.max_clicks.is_some() })
    }

    /// This change followed by another.
    fn and(self, then: Self) -> Self {
        Self {
            password: then.password.or(self.password),
            begins_limit: self.begins_limit || then.begins_limit,
        }
    }

    /// Writes the link's current state.
    async fn write(&self, session: &Session, link: &Link) -> Result<(), Error> {
        let sql = "UPDATE links SET target = $2, title = $3, tags = $4, status = $5, redirect = $6, forward_query = $7, \
             not_before = $8, expires_at = $9, max_clicks = $10, updated_at = $11, \
             password_hash = CASE WHEN $12 THEN $13 ELSE password_hash END WHERE id = $1";
        let (has_password, password) =
            (self.password.is_some(), self.password.as_ref().and_then(Option::as_ref));
        let values = values![
            link.id => INT8, link.target => TEXT, link.title => TEXT, link.tags => TEXT_ARRAY,
            number_of(link.status) as i16 => INT2, redirect(link.redirect.code()) => INT2, link.forward_query => BOOL,
            link.not_before.map(|at| at.0) => INT8, link.expires_at.map(|at| at.0) => INT8,
            link.max_clicks.map(integer) => INT8, link.updated_at.0 => INT8, has_password => BOOL, password => TEXT,
        ];
        session.execute(sql, values).await?;
        if self.begins_limit {
            limits::begin(session, &[link.id]).await?;
        }
        Ok(())
    }
}

/// Deletes links and their clicks.
pub async fn delete_ids(session: &Session, ids: &[i64]) -> Result<(), Error> {
    let sql = "WITH gone AS (DELETE FROM links WHERE id = ANY($1) RETURNING id), \
         totals AS (DELETE FROM totals WHERE link = ANY($1)), limits AS (DELETE FROM limits WHERE link = ANY($1)), \
         clicks AS (DELETE FROM clicks WHERE link = ANY($1)), \
         days AS (DELETE FROM folded_days WHERE link = ANY($1)) SELECT count(*) FROM gone";
    session.query(sql, values![ids => INT8_ARRAY]).await?;
    Ok(())
}

/// Deletes a link if it is `expected`.
pub async fn delete(
    pool: &Pool,
    key: &LinkKey,
    expected: impl FnOnce(&Link) -> bool + Send,
) -> Result<(), Error> {
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    let found = find(&transaction, key, "FOR UPDATE OF l").await;
    let deleted = match found {
        Ok(link) if expected(&link) => delete_ids(&transaction, &[link.id]).await,
        Ok(_) => Err(Error::Changed),
        Err(error) => Err(error),
    };
    match deleted {
        Ok(()) => Ok(transaction.commit().await?),
        Err(error) => {
            transaction.rollback().await?;
            Err(error)
        }
    }
}

/// Deletes many links. Calls `see` with each link before it is deleted, and returns the results.
pub async fn delete_many<T>(
    pool: &Pool,
    keys: &[LinkKey],
    see: impl Fn(&Link) -> T + Send,
) -> Result<Vec<Result<T, Error>>, Error> {
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    let mut locked = lock_many(&transaction, keys).await?;
    let ids: Vec<i64> = locked.values().copied().collect();
    let mut outcomes = Vec::with_capacity(keys.len());
    for some in keys.chunks(HELD) {
        let found = read_locked(&transaction, some, &locked).await?;
        outcomes.extend(some.iter().map(|key| match (locked.remove(key), found.get(key)) {
            (Some(_), Some(link)) => Ok(see(link)),
            // A link that is named twice is deleted once.
            _ => Err(Error::NotFound(key.code.clone())),
        }));
    }
    delete_ids(&transaction, &ids).await?;
    transaction.commit().await?;
    Ok(outcomes)
}
