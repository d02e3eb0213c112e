//! Clicks by hour, as long as hours are kept. A trigger deletes them with their link, since older releases without
//! hours delete links too.

use std::ops::RangeInclusive;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::scope::Links;
use crate::store::rules::clicks::{MAX_HOURS_FORGOTTEN, MAX_LINKS_FOLDED};
use crate::store::{Error, TimeCount};
use crate::when::format_hour;

/// Clicks of a link in an hour: of everybody, and of bots.
pub(in crate::store::sqlite) type Hour = ((i64, i32), [u64; 2]);

/// Adds to the clicks by hour.
pub(in crate::store::sqlite) struct Hours<'c> {
    connection: &'c Connection,
    update: CachedStatement<'c>,
}

impl<'c> Hours<'c> {
    pub(in crate::store::sqlite) fn of(connection: &'c Connection) -> Result<Self, Error> {
        let update = connection.prepare_cached(
            "UPDATE click_hours SET count = count + ?3, bots = bots + ?4 WHERE link = ?1 AND hour = ?2",
        )?;
        Ok(Self { connection, update })
    }

    /// Adds to an hour of a link, or of all links; `is_new` if it certainly has no row yet. Hours in the order of their
    /// keys share pages.
    pub(in crate::store::sqlite) fn add(&mut self, hour: Hour, is_new: bool) -> Result<(), Error> {
        let ((link, hour), [clicks, bots]) = hour;
        if is_new || self.update.execute(params![link, hour, clicks, bots])? == 0 {
            // Only the first flush of an hour inserts.
            self.connection
                .prepare_cached(
                    "INSERT INTO click_hours VALUES (?1, ?2, ?3, ?4) \
                     ON CONFLICT DO UPDATE SET count = count + excluded.count, bots = bots + excluded.bots",
                )?
                .execute(params![link, hour, clicks, bots])?;
        }
        Ok(())
    }
}

/// Sums of hours, oldest first.
pub(in crate::store::sqlite) fn sums(
    connection: &Connection,
    links: &Links,
    hours: &RangeInclusive<i32>,
) -> Result<Vec<TimeCount>, Error> {
    let (these, link) = links.condition();
    let mut statement = connection.prepare_cached(&format!(
        "SELECT hour, sum(count), sum(bots) FROM click_hours WHERE {these} AND hour BETWEEN ?2 AND ?3 \
         GROUP BY hour ORDER BY hour"
    ))?;
    let rows = statement.query_map(params![link, hours.start(), hours.end()], |row| {
        Ok(TimeCount { name: format_hour(row.get(0)?), clicks: row.get(1)?, bots: row.get(2)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Deletes hours before `before`, of as many links from `from` on as one job may. Returns where to continue, or `None`
/// once all are done.
pub(in crate::store::sqlite) fn forget(
    connection: &Connection,
    before: i32,
    from: i64,
) -> Result<Option<i64>, Error> {
    let mut from = Some(from);
    let mut hours = 0;
    for _ in 0..MAX_LINKS_FOLDED {
        let Some(first) = from else { return Ok(None) };
        let next: Option<i64> = connection
            .prepare_cached("SELECT link FROM click_hours WHERE link >= ?1 ORDER BY link LIMIT 1")?
            .query_row([first], |row| row.get(0))
            .optional()?;
        let Some(link) = next else { return Ok(None) };
        hours += connection
            .prepare_cached("DELETE FROM click_hours WHERE link = ?1 AND hour < ?2")?
            .execute([link, i64::from(before)])?;
        from = link.checked_add(1);
        if hours >= MAX_HOURS_FORGOTTEN {
            break;
        }
    }
    Ok(from)
}
