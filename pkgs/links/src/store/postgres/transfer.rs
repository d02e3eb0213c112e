//! Bulk transfer of links: imported in large statements, exported page by page.

use std::collections::{BTreeMap, HashMap, HashSet};

use postgres::{Pool, Session, Transaction};
use tokio::sync::mpsc;

use crate::code::{self, CodePolicy};
use crate::domains::{InDomains, LinkKey};
use crate::link::{NewLink, Status};
use crate::store::draft::Draft;
use crate::store::rules::links::{DRAWS, MAX_ERRORS, number_of, redirect_of, status_of};
use crate::store::{Error, OnConflict, Record, Tally};
use crate::when::Timestamp;

use super::links::{is_referred, redirect};
use super::list::ids;
use super::values::{count, integer, values};
use super::{MANY, clicks, limits};

/// A draft to be inserted, with its number and its code.
struct Row {
    number: u64,
    draft: Draft,
    code: String,
    /// Whether the code is random.
    drawn: bool,
}

impl Row {
    fn key(&self) -> (i64, String) {
        (self.draft.domain_id().0, self.code.clone())
    }
}

/// The columns of links, from rows.
const GIVEN: &str = "unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int2[], $7::int2[], \
    $8::bool[], $9::text[], $10::int8[], $11::int8[], $12::int8[], $13::int8[], $14::int8[]) AS given (domain, code, \
    target, title, tags, status, redirect, forward_query, password_hash, not_before, expires_at, max_clicks, \
    created_at, updated_at)";

/// Runs a statement on [`GIVEN`].
async fn run(
    transaction: &Transaction<'_>,
    sql: &str,
    rows: &[&Row],
    updated_at: Option<Timestamp>,
) -> Result<Vec<postgres::Row>, postgres::Error> {
    fn column<'a, T>(rows: &[&'a Row], value: impl Fn(&'a Draft) -> T) -> Vec<T> {
        rows.iter().map(|row| value(&row.draft)).collect()
    }
    let codes: Vec<&str> = rows.iter().map(|row| &*row.code).collect();
    let values = values![
        column(rows, |draft| draft.domain_id().0) => INT8_ARRAY,
        codes => TEXT_ARRAY,
        column(rows, |draft| &*draft.target) => TEXT_ARRAY,
        column(rows, |draft| draft.title.as_deref()) => TEXT_ARRAY,
        column(rows, |draft| draft.tags.join(" ")) => TEXT_ARRAY,
        column(rows, |draft| number_of(draft.status) as i16) => INT2_ARRAY,
        column(rows, |draft| redirect(draft.redirect.code())) => INT2_ARRAY,
        column(rows, |draft| draft.forward_query) => BOOL_ARRAY,
        column(rows, |draft| draft.password_hash.as_deref()) => TEXT_ARRAY,
        column(rows, |draft| draft.not_before.map(|at| at.0)) => INT8_ARRAY,
        column(rows, |draft| draft.expires_at.map(|at| at.0)) => INT8_ARRAY,
        column(rows, |draft| draft.max_clicks.map(integer)) => INT8_ARRAY,
        column(rows, |draft| draft.created_at.0) => INT8_ARRAY,
        column(rows, |draft| updated_at.unwrap_or(draft.created_at).0) => INT8_ARRAY,
    ];
    transaction.query(sql, values).await
}

/// Sets the timeouts of an import. It may take long, and wait as long for another one: for [`MANY`]. A process that
/// sleeps in the middle of one, or whose machine is gone, does not keep the others waiting for longer than 30 s.
async fn patient(transaction: &Transaction<'_>) -> Result<(), Error> {
    let timeouts = format!(
        "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {}; \
         SET LOCAL idle_in_transaction_session_timeout = '30s'",
        MANY.as_millis()
    );
    Ok(transaction.batch(&timeouts).await?)
}

/// Imports rows in one transaction; each succeeds or fails separately. Also returns the links that were created or
/// replaced.
pub async fn import(
    pool: &Pool,
    policy: &CodePolicy,
    drafts: Vec<Result<Draft, Error>>,
    on_conflict: OnConflict,
) -> Result<(Tally, Vec<LinkKey>), Error> {
    let mut changed = Vec::new();
    let mut tally = Tally::default();
    let fail = |tally: &mut Tally, number: u64, error: Error| {
        tally.failed += 1;
        if tally.errors.len() < MAX_ERRORS {
            tally.errors.push((number, error.to_string()));
        }
    };
    let mut waiting = Vec::with_capacity(drafts.len());
    for (number, draft) in (0..).zip(drafts) {
        match draft {
            Ok(draft) => {
                let (code, drawn) = draft.code.clone().map_or((String::new(), true), |code| (code, false));
                waiting.push(Row { number, draft, code, drawn });
            }
            Err(error) => fail(&mut tally, number, error),
        }
    }
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    patient(&transaction).await?;
    // One import after the other: two of the same codes in different orders would deadlock. Sorted rows would not, but
    // lists and exports have links by their ids, and so in the order in which they were inserted.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('linerate-links import', 0))";
    transaction.query(lock, &[]).await?;
    let mut replaced: HashMap<(i64, String), Row> = HashMap::new();
    let mut draws = 0;
    while !waiting.is_empty() {
        let length = policy.length + (draws / DRAWS) as usize;
        if length > code::MAX_BYTES {
            waiting.into_iter().for_each(|row: Row| {
                fail(&mut tally, row.number, Error::field("code", "no free code was found"));
            });
            break;
        }
        draws += 1;
        let mut taken = HashSet::new();
        for row in &mut waiting {
            while row.drawn && (row.code.is_empty() || policy.validate(&row.code).is_err()) {
                row.code = policy.random(length);
            }
        }
        // Insert the first row of each code. The others then find it taken.
        let first: Vec<&Row> = waiting.iter().filter(|row| taken.insert(row.key())).collect();
        let numbers: HashSet<u64> = first.iter().map(|row| row.number).collect();
        let made = insert(&transaction, &first).await?;
        for mut row in std::mem::take(&mut waiting) {
            if numbers.contains(&row.number) && made.contains(&row.key()) {
                tally.created += 1;
                changed.push(LinkKey { domain: row.draft.domain_id(), code: row.code });
            } else if row.drawn {
                row.code.clear();
                waiting.push(row);
            } else {
                match on_conflict {
                    OnConflict::Fail => fail(&mut tally, row.number, Error::Taken(row.code)),
                    OnConflict::Skip => tally.skipped += 1,
                    OnConflict::Replace => {
                        tally.replaced += 1;
                        // If several rows have this code, the last one is kept.
                        replaced.insert(row.key(), row);
                    }
                }
            }
        }
    }
    replace(&transaction, &replaced.values().collect::<Vec<_>>()).await?;
    transaction.commit().await?;
    changed
        .extend(replaced.into_values().map(|row| LinkKey { domain: row.draft.domain_id(), code: row.code }));
    tally.errors.sort_unstable_by_key(|(row, _)| *row);
    Ok((tally, changed))
}

/// Inserts rows whose codes are free. Returns their keys.
async fn insert(transaction: &Transaction<'_>, rows: &[&Row]) -> Result<HashSet<(i64, String)>, Error> {
    let sql = format!(
        "INSERT INTO links (domain, code, target, title, tags, status, redirect, forward_query, password_hash, \
         not_before, expires_at, max_clicks, created_at, updated_at) \
         SELECT domain, code, target, title, string_to_array(tags, ' '), status, redirect, forward_query, \
         password_hash, not_before, expires_at, max_clicks, created_at, updated_at FROM {GIVEN} \
         ON CONFLICT (domain, code) DO NOTHING RETURNING id, domain, code"
    );
    let made = match run(transaction, &sql, rows, None).await {
        Ok(made) => made,
        Err(error) if is_referred(&error) => return Err(Error::NoDomain("of a row".to_owned())),
        Err(error) => return Err(error.into()),
    };
    let mut ids: HashMap<(i64, String), i64> = HashMap::with_capacity(made.len());
    for row in &made {
        ids.insert((row.try_get(1)?, row.try_get(2)?), row.try_get(0)?);
    }
    let clicked = rows.iter().filter(|row| row.draft.clicks > 0);
    let totals: BTreeMap<i64, i64> =
        clicked.filter_map(|row| Some((*ids.get(&row.key())?, integer(row.draft.clicks)))).collect();
    if !totals.is_empty() {
        clicks::add_to_totals(transaction, &totals).await?;
    }
    Ok(ids.into_keys().collect())
}

/// Replaces the links with these codes by the drafts. Ids, clicks and creation times are kept.
async fn replace(transaction: &Transaction<'_>, rows: &[&Row]) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    // In a fixed order, so that two transactions never deadlock.
    let lock = "SELECT id FROM links WHERE (domain, code) IN (SELECT * FROM unnest($1::int8[], $2::text[])) \
        ORDER BY id FOR UPDATE";
    let domains: Vec<i64> = rows.iter().map(|row| row.draft.domain_id().0).collect();
    let codes: Vec<&str> = rows.iter().map(|row| &*row.code).collect();
    transaction.execute(lock, values![domains => INT8_ARRAY, codes => TEXT_ARRAY]).await?;
    let sql = format!(
        "UPDATE links SET target = given.target, title = given.title, \
         tags = string_to_array(given.tags, ' '), status = given.status, redirect = given.redirect, \
         forward_query = given.forward_query, password_hash = given.password_hash, \
         not_before = given.not_before, expires_at = given.expires_at, max_clicks = given.max_clicks, \
         updated_at = given.updated_at FROM {GIVEN} WHERE links.domain = given.domain AND links.code = given.code \
         RETURNING CASE WHEN given.max_clicks IS NOT NULL THEN links.id END"
    );
    let replaced = run(transaction, &sql, rows, Some(Timestamp::now())).await?;
    let limited: Vec<Option<i64>> = replaced.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let limited: Vec<i64> = limited.into_iter().flatten().collect();
    if !limited.is_empty() {
        limits::begin(transaction, &limited).await?;
    }
    Ok(())
}

/// The most links on a page of an export. Two pages are in memory: one is being written, and the next one waits.
const EXPORT_LINKS: usize = 500;

/// How many links are looked at for a page, at most: it does not take long even if few of them are of its domains.
const EXPORT_LOOKED_AT: i64 = 20_000;

/// A page of links. The clicks are looked up link by link: a join may read those of all earlier links for each page.
const EXPORT: &str = "SELECT l.code, l.target, l.title, l.tags, l.status, l.redirect, l.forward_query, \
    l.password_hash, l.not_before, l.expires_at, l.max_clicks, \
    coalesce((SELECT t.clicks FROM totals t WHERE t.link = l.id), 0), l.created_at, \
    (SELECT d.host FROM domains d WHERE d.id = l.named_domain), l.id FROM links l \
    WHERE l.id > $1 AND l.id <= $2 AND ($3::int8[] IS NULL OR l.domain = ANY($3)) ORDER BY l.id LIMIT $4";

/// Sends all links of some domains, by id, page by page; each link is as it was when its page was read. A page is read
/// once there is room for it. The receiver waits for a client: a session that waits too would be missing for others,
/// and its snapshot would keep dead rows from being vacuumed.
pub async fn export(
    pool: &Pool,
    of: &InDomains,
    hashes: bool,
    to: &mpsc::Sender<Option<Result<Vec<Record>, Error>>>,
) -> Result<(), Error> {
    let domains = ids(of);
    // Others may have all sessions for a while, and an export that breaks off has to begin anew.
    let session = async || loop {
        match pool.get().await {
            Err(postgres::Error::Busy) if !to.is_closed() => {}
            session => break session,
        }
    };
    let rows = session().await?.query("SELECT coalesce(max(id), 0) FROM links", &[]).await?;
    let newest: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    // The last link that was looked at, and that of the part that pages are read from.
    let (mut last, mut until) = (0_i64, 0_i64);
    while last < newest {
        // It fails if the receiver is gone.
        let Ok(room) = to.reserve().await else { return Ok(()) };
        let session = session().await?;
        if last == until {
            until = end_of_part(&session, last).await?.unwrap_or(newest).min(newest);
        }
        let most = integer(EXPORT_LINKS as u64);
        let rows = session
            .query(EXPORT, values![last => INT8, until => INT8, domains => INT8_ARRAY, most => INT8])
            .await?;
        drop(session);
        last = match rows.last() {
            Some(row) if rows.len() == EXPORT_LINKS => row.try_get(14)?,
            _ => until,
        };
        let page: Vec<Record> =
            rows.iter().map(|row| record_of(row, hashes)).collect::<Result<_, Error>>()?;
        room.send(Some(Ok(page)));
    }
    Ok(())
}

/// The id of the last of the next [`EXPORT_LOOKED_AT`] links; `None` if there are fewer.
async fn end_of_part(session: &Session, last: i64) -> Result<Option<i64>, Error> {
    let sql = "SELECT id FROM links WHERE id > $1 ORDER BY id LIMIT 1 OFFSET $2";
    let rows = session.query(sql, values![last => INT8, EXPORT_LOOKED_AT - 1 => INT8]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

/// The record of a row of [`EXPORT`].
fn record_of(row: &postgres::Row, hashes: bool) -> Result<Record, Error> {
    let password_hash: Option<String> = row.try_get(7)?;
    // A link with a password must not become public.
    let status = match password_hash.is_some() && !hashes {
        true => Status::Disabled,
        false => status_of(row.try_get::<_, i16>(4)?.into()),
    };
    Ok(Record {
        link: NewLink {
            domain: row.try_get(13)?,
            code: Some(row.try_get(0)?),
            target: row.try_get(1)?,
            title: row.try_get(2)?,
            tags: row.try_get(3)?,
            status,
            redirect: redirect_of(row.try_get::<_, i16>(5)?.unsigned_abs()),
            forward_query: row.try_get(6)?,
            password: None,
            not_before: row.try_get::<_, Option<i64>>(8)?.map(Timestamp),
            expires_at: row.try_get::<_, Option<i64>>(9)?.map(Timestamp),
            max_clicks: row.try_get::<_, Option<i64>>(10)?.map(count),
        },
        created_at: Some(Timestamp(row.try_get(12)?)),
        clicks: count(row.try_get(11)?),
        password_hash: password_hash.filter(|_| hashes),
    })
}
