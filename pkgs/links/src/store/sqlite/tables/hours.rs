//! Clicks by hour, as long as hours are kept. A trigger deletes them with their link, since older releases without
//! hours delete links too.

use std::ops::RangeInclusive;

use rusqlite::{Connection, OptionalExtension, params};

use super::many;
use super::scope::Links;
use crate::store::rules::clicks::{MAX_HOURS_FORGOTTEN, MAX_LINKS_FOLDED};
use crate::store::{Error, TimeCount};
use crate::when::format_hour;

/// Clicks of a link in an hour: of everybody, and of bots.
pub(in crate::store::sqlite) type Hour = ((i64, i32), [u64; 2]);

/// Adds to hours of links, and of all links together.
pub(in crate::store::sqlite) fn add(connection: &Connection, hours: &[Hour]) -> Result<(), Error> {
    let sums = "count = count + excluded.count, bots = bots + excluded.bots";
    many::add(connection, "click_hours", sums, hours, |&((link, hour), [clicks, bots])| {
        [link.into(), hour.into(), clicks.cast_signed().into(), bots.cast_signed().into()]
    })
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
