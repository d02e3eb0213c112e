//! Creates, edits, deletes and imports links, within the writer's transaction.

use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use crate::code::{self, CodePolicy};
use crate::domains::{DomainId, LinkKey};
use crate::link::Link;
use crate::when::Timestamp;

use super::{clicks, domains};
use crate::store::draft::{Draft, Edit};
use crate::store::rules::links::{DRAWS, KEY_SECONDS, MAX_ERRORS, end_of, number_of, redirect_of, status_of};
use crate::store::sqlite::work::WriteContext;
use crate::store::{Created, Error, IdempotencyKey, OnConflict, Tally};

/// The columns for [`link_of`], in order.
pub(in crate::store::sqlite) const COLUMNS: &str = "id, code, target, title, tags, status, redirect, forward_query, \
    substr(password_hash, -16), not_before, expires_at, max_clicks, \
    ifnull((SELECT clicks FROM totals WHERE link = id), 0) AS clicks, created_at, updated_at, domain, \
    iif(domain = 0, NULL, (SELECT host FROM domains WHERE domains.id = domain))";

/// The link of a row of [`COLUMNS`].
pub(in crate::store::sqlite) fn link_of(row: &Row<'_>) -> rusqlite::Result<Link> {
    let tags: String = row.get(4)?;
    let password_end: Option<String> = row.get(8)?;
    Ok(Link {
        id: row.get(0)?,
        code: row.get(1)?,
        target: row.get(2)?,
        title: row.get(3)?,
        tags: tags.split_ascii_whitespace().map(str::to_owned).collect(),
        status: status_of(row.get(5)?),
        redirect: redirect_of(row.get(6)?),
        forward_query: row.get(7)?,
        protected: password_end.is_some(),
        password_end,
        not_before: row.get::<_, Option<i64>>(9)?.map(Timestamp),
        expires_at: row.get::<_, Option<i64>>(10)?.map(Timestamp),
        max_clicks: row.get(11)?,
        clicks: row.get(12)?,
        created_at: Timestamp(row.get(13)?),
        updated_at: Timestamp(row.get(14)?),
        domain_id: DomainId(row.get(15)?),
        domain: row.get(16)?,
    })
}

/// A link by code.
pub(in crate::store::sqlite) fn get(connection: &Connection, key: &LinkKey) -> Result<Link, Error> {
    let sql = format!("SELECT {COLUMNS} FROM links WHERE domain = ?1 AND code = ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    let link = statement.query_row(params![key.domain.0, key.code], link_of).optional()?;
    link.ok_or_else(|| Error::NotFound(key.code.clone()))
}

pub(in crate::store::sqlite) fn create(
    work: &mut WriteContext<'_>,
    policy: &CodePolicy,
    draft: Draft,
    key: Option<&IdempotencyKey>,
) -> Result<Created, Error> {
    let Some(key) = key else { return Ok(Created { link: insert(work, policy, draft)?, replayed: false }) };
    let now = Timestamp::now().0;
    let connection = work.connection;
    connection
        .prepare_cached("DELETE FROM idempotency WHERE created_at < ?1")?
        .execute([now - KEY_SECONDS])?;
    let known: Option<(Vec<u8>, i64)> = connection
        .prepare_cached("SELECT request, link FROM idempotency WHERE key = ?1")?
        .query_row([&key.key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((request, id)) = known {
        if request != key.request {
            return Err(Error::KeyReused);
        }
        let mut statement =
            connection.prepare_cached(&format!("SELECT {COLUMNS} FROM links WHERE id = ?1"))?;
        // If the link was deleted, its key is free again.
        if let Some(link) = statement.query_row([id], link_of).optional()? {
            return Ok(Created { link, replayed: true });
        }
    }
    let link = insert(work, policy, draft)?;
    connection
        .prepare_cached("INSERT OR REPLACE INTO idempotency VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![key.key, key.request, link.id, now])?;
    Ok(Created { link, replayed: false })
}

pub(in crate::store::sqlite) fn insert(
    work: &mut WriteContext<'_>,
    policy: &CodePolicy,
    draft: Draft,
) -> Result<Link, Error> {
    let (id, code) = insert_row(work.connection, policy, &draft)?;
    work.changed(LinkKey { domain: draft.domain_id(), code: code.clone() });
    Ok(draft.into_link(id, code))
}

/// Inserts under the draft's code, or under the first free random one.
fn insert_row(connection: &Connection, policy: &CodePolicy, draft: &Draft) -> Result<(i64, String), Error> {
    if let Some(domain) = &draft.domain {
        // The domain may have been deleted in the meantime.
        domains::expect(connection, domain)?;
    }
    if let Some(code) = &draft.code {
        let id = try_insert(connection, draft, code)?.ok_or_else(|| Error::Taken(code.clone()))?;
        return Ok((id, code.clone()));
    }
    for length in policy.length..=code::MAX_BYTES {
        for _ in 0..DRAWS {
            let code = policy.random(length);
            // A random code may be a reserved word.
            if policy.validate(&code).is_ok()
                && let Some(id) = try_insert(connection, draft, &code)?
            {
                return Ok((id, code));
            }
        }
    }
    Err(Error::field("code", "no free code was found"))
}

/// Returns the new id; `None` if the code is taken.
fn try_insert(connection: &Connection, draft: &Draft, code: &str) -> Result<Option<i64>, Error> {
    if !put(connection, draft, code, draft.created_at, "DO NOTHING")? {
        return Ok(None);
    }
    let id = connection.last_insert_rowid();
    if draft.clicks > 0 {
        clicks::Totals::of(connection)?.add(id, draft.clicks)?;
    }
    insert_tags(connection, id, &draft.tags)?;
    Ok(Some(id))
}

/// Inserts a link under this code. If the code is taken, `on_conflict` applies. Returns whether the row is now as
/// drafted. It does not use RETURNING, with which an import of a million links takes minutes instead of seconds.
fn put(
    connection: &Connection,
    draft: &Draft,
    code: &str,
    updated_at: Timestamp,
    on_conflict: &str,
) -> Result<bool, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "INSERT INTO links (domain, code, target, title, tags, status, redirect, forward_query, password_hash, \
         not_before, expires_at, max_clicks, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
         ON CONFLICT (domain, code) {on_conflict}"
    ))?;
    let values = params![
        draft.domain_id().0,
        code,
        draft.target,
        draft.title,
        draft.tags.join(" "),
        number_of(draft.status),
        draft.redirect.code(),
        draft.forward_query,
        draft.password_hash,
        draft.not_before.map(|at| at.0),
        draft.expires_at.map(|at| at.0),
        draft.max_clicks,
        draft.created_at.0,
        updated_at.0,
    ];
    Ok(statement.execute(values)? == 1)
}

fn insert_tags(connection: &Connection, link: i64, tags: &[String]) -> Result<(), Error> {
    for tag in tags {
        connection.prepare_cached("INSERT INTO link_tags VALUES (?1, ?2)")?.execute(params![tag, link])?;
    }
    Ok(())
}

fn replace_tags(connection: &Connection, link: i64, tags: &[String]) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM link_tags WHERE link = ?1")?.execute([link])?;
    insert_tags(connection, link, tags)
}

pub(in crate::store::sqlite) fn edit(
    work: &mut WriteContext<'_>,
    key: LinkKey,
    edit: Edit,
    expected: impl FnOnce(&Link) -> bool,
) -> Result<Link, Error> {
    let connection = work.connection;
    let mut link = get(connection, &key)?;
    if !expected(&link) {
        return Err(Error::Changed);
    }
    let retagged = edit.retags();
    let password = edit.apply(&mut link)?;
    connection
        .prepare_cached(
            "UPDATE links SET target = :target, title = :title, tags = :tags, status = :status, \
             redirect = :redirect, forward_query = :forward_query, not_before = :not_before, \
             expires_at = :expires_at, max_clicks = :max_clicks, updated_at = :updated_at WHERE id = :id",
        )?
        .execute(named_params! {
            ":target": link.target,
            ":title": link.title,
            ":tags": link.tags.join(" "),
            ":status": number_of(link.status),
            ":redirect": link.redirect.code(),
            ":forward_query": link.forward_query,
            ":not_before": link.not_before.map(|at| at.0),
            ":expires_at": link.expires_at.map(|at| at.0),
            ":max_clicks": link.max_clicks,
            ":updated_at": link.updated_at.0,
            ":id": link.id,
        })?;
    if let Some(hash) = password {
        connection
            .prepare_cached("UPDATE links SET password_hash = ?2 WHERE id = ?1")?
            .execute(params![link.id, hash])?;
        link.protected = hash.is_some();
        link.password_end = hash.as_deref().map(end_of);
    }
    if retagged {
        replace_tags(connection, link.id, &link.tags)?;
    }
    work.changed(key);
    Ok(link)
}

pub(in crate::store::sqlite) fn delete(work: &mut WriteContext<'_>, key: LinkKey) -> Result<(), Error> {
    let connection = work.connection;
    let id: Option<i64> = connection
        .prepare_cached("DELETE FROM links WHERE domain = ?1 AND code = ?2 RETURNING id")?
        .query_row(params![key.domain.0, key.code], |row| row.get(0))
        .optional()?;
    let Some(id) = id else { return Err(Error::NotFound(key.code)) };
    clicks::delete(connection, id)?;
    work.changed(key);
    Ok(())
}

pub(in crate::store::sqlite) fn import(
    work: &mut WriteContext<'_>,
    policy: &CodePolicy,
    drafts: Vec<Result<Draft, Error>>,
    on_conflict: OnConflict,
) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    for (row, draft) in (0..).zip(drafts) {
        let done = draft.and_then(|draft| import_row(work.connection, policy, &draft, on_conflict));
        match done {
            Ok(Imported::Created) => tally.created += 1,
            Ok(Imported::Replaced) => tally.replaced += 1,
            Ok(Imported::Skipped) => tally.skipped += 1,
            Err(error) if error.ends_transaction() => return Err(error),
            Err(error) => {
                tally.failed += 1;
                if tally.errors.len() < MAX_ERRORS {
                    tally.errors.push((row, error.to_string()));
                }
            }
        }
    }
    work.all_changed();
    Ok(tally)
}

enum Imported {
    Created,
    Replaced,
    Skipped,
}

fn import_row(
    connection: &Connection,
    policy: &CodePolicy,
    draft: &Draft,
    on_conflict: OnConflict,
) -> Result<Imported, Error> {
    match insert_row(connection, policy, draft) {
        Ok(_) => Ok(Imported::Created),
        Err(Error::Taken(_)) if on_conflict == OnConflict::Skip => Ok(Imported::Skipped),
        Err(Error::Taken(code)) if on_conflict == OnConflict::Replace => {
            replace(connection, &code, draft)?;
            Ok(Imported::Replaced)
        }
        Err(error) => Err(error),
    }
}

/// Replaces the link with this code by the draft. The id, clicks and creation time are kept.
fn replace(connection: &Connection, code: &str, draft: &Draft) -> Result<(), Error> {
    let update = "DO UPDATE SET target = excluded.target, title = excluded.title, tags = excluded.tags, \
        status = excluded.status, redirect = excluded.redirect, forward_query = excluded.forward_query, \
        password_hash = excluded.password_hash, not_before = excluded.not_before, \
        expires_at = excluded.expires_at, max_clicks = excluded.max_clicks, updated_at = excluded.updated_at";
    put(connection, draft, code, Timestamp::now(), update)?;
    let id = connection
        .prepare_cached("SELECT id FROM links WHERE domain = ?1 AND code = ?2")?
        .query_row(params![draft.domain_id().0, code], |row| row.get(0))?;
    replace_tags(connection, id, &draft.tags)
}
