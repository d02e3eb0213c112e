//! Clicks: added by the workers' flushes, summed for statistics.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use rusqlite::{Connection, OptionalExtension, params};

use crate::agent::Agent;
use crate::when::format_day;

use super::writer::Work;
use super::{ClickBatch, Count, Error, Stats};

/// The link that stands for all of them.
const ALL: i64 = 0;

/// Rows a link may have for a day; visits from further referrers count under [`OTHER`].
const ROWS_PER_DAY: i64 = 1_000;

/// Rows all links together may have for a day.
const ROWS_PER_DAY_OF_ALL: i64 = 10_000;

/// Referrers known by name; anybody can make names up, so there is an end.
const MAX_REFERRERS: i64 = 100_000;

/// The name of all further referrers.
const OTHER: &str = "(other)";

/// Referrers that a breakdown names.
const TOP_REFERRERS: i64 = 100;

/// What a row of counts is told apart by.
type Key = (i64, i32, i64, Agent);

pub(super) fn count(work: &mut Work<'_>, batch: &ClickBatch) -> Result<(), Error> {
    let connection = work.connection;
    let mut referrers = Vec::with_capacity(batch.referrers.len());
    for host in &batch.referrers {
        referrers.push(referrer_id(connection, host)?);
    }
    // In the order of the key, so that neighbours share their pages. Two hosts may share a number.
    let mut counts: Vec<(Key, u64)> = batch
        .clicks
        .iter()
        .map(|click| {
            let referrer = referrers.get(click.referrer as usize).copied().unwrap_or_default();
            ((click.link, click.day, referrer, click.agent), u64::from(click.count))
        })
        .collect();
    counts.sort_unstable();
    let mut room = Room::default();
    let mut all: HashMap<Key, u64> = HashMap::new();
    for counts in counts.chunk_by(|((one, ..), _), ((other, ..), _)| one == other) {
        let ((link, ..), _) = counts[0];
        let clicks: u64 = counts.iter().map(|(_, clicks)| clicks).sum();
        if !add_to_total(connection, link, clicks)? {
            continue;
        }
        for &(key, clicks) in counts {
            add(connection, &mut room, key, clicks)?;
            let (_, day, referrer, agent) = key;
            *all.entry((ALL, day, referrer, agent)).or_default() += clicks;
        }
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_unstable();
    for (key, clicks) in all {
        add(connection, &mut room, key, clicks)?;
    }
    Ok(())
}

/// Adds to the clicks of a link; false where there is no such link.
pub(super) fn add_to_total(connection: &Connection, link: i64, clicks: u64) -> Result<bool, Error> {
    // An imported count may be near the greatest integer: one more must not fail the transaction.
    let known = connection
        .prepare_cached(
            "UPDATE totals SET clicks = min(clicks, 9223372036854775807 - ?2) + ?2 WHERE link = ?1",
        )?
        .execute(params![link, clicks])?;
    let first = || -> Result<usize, Error> {
        let mut insert =
            connection.prepare_cached("INSERT INTO totals SELECT id, ?2 FROM links WHERE id = ?1")?;
        Ok(insert.execute(params![link, clicks])?)
    };
    Ok(known == 1 || first()? == 1)
}

/// Forgets the clicks of a link; the sum of all keeps them.
pub(super) fn delete(connection: &Connection, link: i64) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM totals WHERE link = ?1")?.execute([link])?;
    connection.prepare_cached("DELETE FROM clicks WHERE link = ?1")?.execute([link])?;
    Ok(())
}

fn add(connection: &Connection, room: &mut Room, key: Key, clicks: u64) -> Result<(), Error> {
    if bump(connection, key, clicks)? {
        return Ok(());
    }
    let (link, day, _, agent) = key;
    if room.take(connection, link, day)? {
        return insert(connection, key, clicks);
    }
    let other = (link, day, referrer_id(connection, OTHER)?, agent);
    if bump(connection, other, clicks)? { Ok(()) } else { insert(connection, other, clicks) }
}

/// How many more rows the link and day at hand may have: counted once, for keys come in order.
#[derive(Default)]
struct Room {
    of: Option<(i64, i32)>,
    left: i64,
}

impl Room {
    /// Takes room for a row; false where none is left.
    fn take(&mut self, connection: &Connection, link: i64, day: i32) -> Result<bool, Error> {
        if self.of != Some((link, day)) {
            let rows: i64 = connection
                .prepare_cached("SELECT count(*) FROM clicks WHERE link = ?1 AND day = ?2")?
                .query_row(params![link, day], |row| row.get(0))?;
            let most = if link == ALL { ROWS_PER_DAY_OF_ALL } else { ROWS_PER_DAY };
            *self = Self { of: Some((link, day)), left: most - rows };
        }
        self.left -= 1;
        Ok(self.left >= 0)
    }
}

/// Adds to a row; false where there is none.
fn bump(connection: &Connection, (link, day, referrer, agent): Key, clicks: u64) -> Result<bool, Error> {
    let changed = connection
        .prepare_cached(
            "UPDATE clicks SET count = count + ?5 WHERE link = ?1 AND day = ?2 AND referrer = ?3 AND agent = ?4",
        )?
        .execute(params![link, day, referrer, agent as u8, clicks])?;
    Ok(changed == 1)
}

fn insert(connection: &Connection, (link, day, referrer, agent): Key, clicks: u64) -> Result<(), Error> {
    connection.prepare_cached("INSERT INTO clicks VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
        link,
        day,
        referrer,
        agent as u8,
        clicks
    ])?;
    Ok(())
}

/// The number of a host; 0 for none.
fn referrer_id(connection: &Connection, host: &str) -> Result<i64, Error> {
    if host.is_empty() {
        return Ok(0);
    }
    let known = connection
        .prepare_cached("SELECT id FROM referrers WHERE host = ?1")?
        .query_row([host], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    // Ids are given in order and never deleted, so the last one tells how many there are.
    let last: i64 = connection
        .prepare_cached("SELECT ifnull(max(id), 0) FROM referrers")?
        .query_row([], |row| row.get(0))?;
    if last >= MAX_REFERRERS && host != OTHER {
        return referrer_id(connection, OTHER);
    }
    connection.prepare_cached("INSERT INTO referrers (host) VALUES (?1)")?.execute([host])?;
    Ok(connection.last_insert_rowid())
}

/// Sums the clicks of one link, or of all.
pub(super) fn stats(
    connection: &Connection,
    link: Option<i64>,
    days: &RangeInclusive<i32>,
) -> Result<Stats, Error> {
    let link = link.unwrap_or(ALL);
    let (first, last) = (*days.start(), *days.end());
    let days = breakdown(
        connection,
        "SELECT day, sum(count) FROM clicks WHERE link = ?1 AND day BETWEEN ?2 AND ?3 GROUP BY day ORDER BY day",
        (link, first, last),
        |row| Ok(format_day(row.get(0)?)),
    )?;
    let referrers = breakdown(
        connection,
        &format!(
            "SELECT ifnull(host, ''), sum(count) AS clicks FROM clicks LEFT JOIN referrers ON id = referrer \
             WHERE link = ?1 AND day BETWEEN ?2 AND ?3 GROUP BY referrer ORDER BY clicks DESC, host \
             LIMIT {TOP_REFERRERS}"
        ),
        (link, first, last),
        |row| row.get(0),
    )?;
    let agents = breakdown(
        connection,
        "SELECT agent, sum(count) AS clicks FROM clicks WHERE link = ?1 AND day BETWEEN ?2 AND ?3 \
         GROUP BY agent ORDER BY clicks DESC, agent",
        (link, first, last),
        |row| Ok(Agent::from_u8(row.get(0)?).name().to_owned()),
    )?;
    let clicks = days.iter().map(|day| day.clicks).sum();
    Ok(Stats { clicks, days, referrers, agents })
}

fn breakdown(
    connection: &Connection,
    query: &str,
    range: (i64, i32, i32),
    name: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<String>,
) -> Result<Vec<Count>, Error> {
    let mut statement = connection.prepare_cached(query)?;
    let rows = statement.query_map(range, |row| Ok(Count { name: name(row)?, clicks: row.get(1)? }))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
