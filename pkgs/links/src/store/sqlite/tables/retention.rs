//! Old days of clicks, merged into one day.
//!
//! A link has a limited number of rows per day, but the number of days grows. So rows of old days are added to those of
//! [`OLDER`], which have the same limit as any other day. Sums by referrer and agent stay the same, except for the
//! referrers with the fewest visits.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::agent::Agent;
use crate::when::Timestamp;

use super::clicks::{self, Key};
use super::countries;
use crate::store::Error;
use crate::store::rules::clicks::{MAX_LINKS_FOLDED, MAX_ROWS_FOLDED, OLDER};

/// Merges days before `before`, of as many links from `from` on as one job may. Returns where to continue, or `None`
/// once all are done.
pub(in crate::store::sqlite) fn fold(
    connection: &Connection,
    before: i32,
    from: i64,
) -> Result<Option<i64>, Error> {
    let mut from = Some(from);
    let mut rows = MAX_ROWS_FOLDED;
    for _ in 0..MAX_LINKS_FOLDED {
        let Some(link) = from.map(|from| next(connection, from)).transpose()?.flatten() else {
            return Ok(None);
        };
        countries::fold(connection, link, before)?;
        rows -= fold_link(connection, link, before, rows)?;
        if rows == 0 {
            return Ok(Some(link));
        }
        from = link.checked_add(1);
    }
    Ok(from)
}

/// The first link with clicks, from `from` on.
fn next(connection: &Connection, from: i64) -> Result<Option<i64>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT link FROM clicks WHERE link >= ?1 ORDER BY link LIMIT 1")?;
    Ok(statement.query_row([from], |row| row.get(0)).optional()?)
}

/// Merges at most `most` of a link's oldest rows. Returns how many.
fn fold_link(connection: &Connection, link: i64, before: i32, most: usize) -> Result<usize, Error> {
    let rows: Vec<(i32, String, u8, u64)> = connection
        .prepare_cached(
            "SELECT day, referrer, agent, count FROM clicks WHERE link = ?1 AND day > ?2 AND day < ?3 \
             ORDER BY day, referrer, agent LIMIT ?4",
        )?
        .query_map(params![link, OLDER, before, most], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect::<Result<_, _>>()?;
    let (Some((first, ..)), Some((last, referrer, agent, _))) = (rows.first(), rows.last()) else {
        return Ok(0);
    };
    connection
        .prepare_cached(
            "DELETE FROM clicks WHERE link = ?1 AND day > ?2 AND (day, referrer, agent) <= (?3, ?4, ?5)",
        )?
        .execute(params![link, OLDER, last, referrer, agent])?;
    let mut sums: BTreeMap<Key<'_>, u64> = BTreeMap::new();
    for (_, referrer, agent, clicks) in &rows {
        *sums.entry((link, OLDER, referrer, Agent::from_u8(*agent))).or_default() += clicks;
    }
    let sums: Vec<_> = sums.into_iter().collect();
    // The rows count as seen on the last of these days, not now.
    clicks::Days::of(connection, Timestamp::of_day(*last))?.add(&sums)?;
    connection
        .prepare_cached(
            "INSERT INTO folded_days VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE \
             SET first = min(first, excluded.first), last = max(last, excluded.last)",
        )?
        .execute(params![link, first, last])?;
    Ok(rows.len())
}
