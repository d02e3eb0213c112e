//! Clicks: the workers' flushes add them, and statistics sum them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use rusqlite::{CachedStatement, Connection, Params, params};

use crate::agent::Agent;
use crate::when::{Timestamp, format_day};

use super::hours::Hour;
use super::scope::Links;
use super::{countries, folded, hours, many};
use crate::store::rules::clicks::{ALL, OLDER, OTHER, ROWS_PER_DAY, ROWS_PER_DAY_OF_ALL, TOP_REFERRERS};
use crate::store::sqlite::work::WriteContext;
use crate::store::{Click, ClickBatch, Count, Error, Stats, TimeCount};

/// The key of a row of counts: link, day, referrer and agent.
pub(in crate::store::sqlite) type Key<'b> = (i64, i32, &'b str, Agent);

pub(in crate::store::sqlite) fn count(work: &mut WriteContext<'_>, batch: &ClickBatch) -> Result<(), Error> {
    let connection = work.connection;
    let now = Timestamp::now();
    // Sorted by key, so that neighbouring rows share pages.
    let mut counts: Vec<(Key<'_>, u64)> = batch
        .clicks
        .iter()
        .map(|click| {
            let referrer = batch.referrers.get(click.referrer as usize).map_or("", String::as_str);
            ((click.link, click.day(), referrer, click.agent), u64::from(click.count))
        })
        .collect();
    counts.sort_unstable();
    let mut totals = Totals::of(connection)?;
    let mut days = Days::of(connection, now)?;
    let mut all: HashMap<Key<'_>, u64, foldhash::fast::RandomState> = HashMap::default();
    let mut first: Vec<(Key<'_>, u64)> = Vec::new();
    let mut gone: HashSet<i64> = HashSet::new();
    for counts in counts.chunk_by(|((one, ..), _), ((other, ..), _)| one == other) {
        let ((link, ..), _) = counts[0];
        let clicks: u64 = counts.iter().map(|(_, clicks)| clicks).sum();
        let seen = totals.add(link, clicks)?;
        if seen == Seen::Gone {
            gone.insert(link);
            continue;
        }
        for &((_, day, referrer, agent), clicks) in counts {
            *all.entry((ALL, day, referrer, agent)).or_default() += clicks;
        }
        // There is no row yet, and room for half of a day's.
        if seen == Seen::First && counts.len() <= ROWS_PER_DAY / 2 {
            first.extend_from_slice(counts);
        } else {
            days.add(counts)?;
        }
    }
    insert(connection, &first, now)?;
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_unstable();
    days.add(&all)?;
    hours::add(connection, &by_hour(batch, &gone))?;
    countries::add(connection, &batch.countries, &gone)
}

/// Sums the clicks of existing links by link and hour, in this order, after those of all links.
fn by_hour(batch: &ClickBatch, gone: &HashSet<i64>) -> Vec<Hour> {
    let hour = |click: &Click| {
        let clicks = u64::from(click.count);
        ((click.link, click.hour), [clicks, if click.agent == Agent::Bot { clicks } else { 0 }])
    };
    let add = |sum: &mut [u64; 2], clicks: [u64; 2]| *sum = [sum[0] + clicks[0], sum[1] + clicks[1]];
    let mut hours: Vec<Hour> =
        batch.clicks.iter().filter(|click| !gone.contains(&click.link)).map(hour).collect();
    let mut all: BTreeMap<i32, [u64; 2]> = BTreeMap::new();
    for &((_, hour), clicks) in &hours {
        add(all.entry(hour).or_default(), clicks);
    }
    hours.extend(all.into_iter().map(|(hour, clicks)| ((ALL, hour), clicks)));
    hours.sort_unstable();
    hours.dedup_by(|(key, clicks), (first, sum)| {
        let is_same = key == first;
        if is_same {
            add(sum, *clicks);
        }
        is_same
    });
    hours
}

/// Whether a link was clicked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::sqlite) enum Seen {
    /// There is no such link.
    Gone,
    /// It has no rows yet, so none has to be looked for.
    First,
    /// It may have rows.
    Before,
}

/// Total clicks of links.
pub(in crate::store::sqlite) struct Totals<'c> {
    connection: &'c Connection,
    update: CachedStatement<'c>,
}

impl<'c> Totals<'c> {
    pub(in crate::store::sqlite) fn of(connection: &'c Connection) -> Result<Self, Error> {
        // An imported count may be near the largest integer; one more click must not fail the transaction.
        let update = connection.prepare_cached(
            "UPDATE totals SET clicks = min(clicks, 9223372036854775807 - ?2) + ?2 WHERE link = ?1",
        )?;
        Ok(Self { connection, update })
    }

    /// Adds to the clicks of a link.
    pub(in crate::store::sqlite) fn add(&mut self, link: i64, clicks: u64) -> Result<Seen, Error> {
        if self.update.execute(params![link, clicks])? == 1 {
            return Ok(Seen::Before);
        }
        Ok(if self.insert(link, clicks)? { Seen::First } else { Seen::Gone })
    }

    fn insert(&self, link: i64, clicks: u64) -> Result<bool, Error> {
        let mut insert =
            self.connection.prepare_cached("INSERT INTO totals SELECT id, ?2 FROM links WHERE id = ?1")?;
        Ok(insert.execute(params![link, clicks])? == 1)
    }
}

/// Deletes the clicks of a link. The sum over all links keeps them.
pub(in crate::store::sqlite) fn delete(connection: &Connection, link: i64) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM totals WHERE link = ?1")?.execute([link])?;
    connection.prepare_cached("DELETE FROM clicks WHERE link = ?1")?.execute([link])?;
    folded::delete(connection, link)
}

/// Clicks by day. `now` becomes the time at which the rows that are added to were last seen.
pub(in crate::store::sqlite) struct Days<'c> {
    connection: &'c Connection,
    now: Timestamp,
    update: CachedStatement<'c>,
}

impl<'c> Days<'c> {
    pub(in crate::store::sqlite) fn of(connection: &'c Connection, now: Timestamp) -> Result<Self, Error> {
        let update = connection.prepare_cached(
            "UPDATE clicks SET count = count + ?5, seen = ?6 \
             WHERE link = ?1 AND day = ?2 AND referrer = ?3 AND agent = ?4",
        )?;
        Ok(Self { connection, now, update })
    }

    /// Adds the sorted counts of one link, or of all links.
    pub(in crate::store::sqlite) fn add(&mut self, counts: &[(Key<'_>, u64)]) -> Result<(), Error> {
        for counts in counts.chunk_by(|((_, one, ..), _), ((_, other, ..), _)| one == other) {
            let mut new = Vec::new();
            for &(key, clicks) in counts {
                if !self.update(key, clicks)? {
                    new.push((key, clicks));
                }
            }
            let Some(&((link, day, ..), _)) = new.first() else { continue };
            let most = if link == ALL { ROWS_PER_DAY_OF_ALL } else { ROWS_PER_DAY };
            // At most half of the rows are new ones, namely those with the most visits. So a flood of names does not
            // displace everything.
            new.sort_unstable_by_key(|((_, _, referrer, _), clicks)| {
                (!referrer.is_empty(), Reverse(*clicks))
            });
            let (named, rest) = new.split_at(new.len().min(most / 2));
            make_room(self.connection, (link, day), named.len(), most)?;
            insert(self.connection, named, self.now)?;
            for &((_, _, _, agent), clicks) in rest {
                insert(self.connection, &[((link, day, OTHER, agent), clicks)], self.now)?;
            }
        }
        Ok(())
    }

    /// Adds to a row; false if there is none.
    fn update(&mut self, (link, day, referrer, agent): Key<'_>, clicks: u64) -> Result<bool, Error> {
        let changed = self.update.execute(params![link, day, referrer, agent as u8, clicks, self.now.0])?;
        Ok(changed == 1)
    }
}

/// Makes room for this many more rows.
fn make_room(
    connection: &Connection,
    (link, day): (i64, i32),
    more: usize,
    most: usize,
) -> Result<(), Error> {
    let rows: usize = connection
        .prepare_cached("SELECT count(*) FROM clicks WHERE link = ?1 AND day = ?2")?
        .query_row(params![link, day], |row| row.get(0))?;
    if rows + more <= most {
        return Ok(());
    }
    // Evicts a few more rows than needed, so that not every flush has to sort the rows.
    let excess = rows + more - most + most / 20;
    let evicted: Vec<(u8, u64)> = connection
        .prepare_cached(
            "DELETE FROM clicks WHERE link = ?1 AND day = ?2 AND (referrer, agent) IN (SELECT referrer, agent \
             FROM clicks WHERE link = ?1 AND day = ?2 AND referrer NOT IN ('', ?3) ORDER BY count, seen LIMIT ?4) \
             RETURNING agent, count",
        )?
        .query_map(params![link, day, OTHER, excess], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (agent, clicks) in evicted {
        insert(connection, &[((link, day, OTHER, Agent::from_u8(agent)), clicks)], Timestamp::now())?;
    }
    Ok(())
}

/// Adds to rows, and inserts those that are not there.
fn insert(connection: &Connection, rows: &[(Key<'_>, u64)], now: Timestamp) -> Result<(), Error> {
    let sums = "count = count + excluded.count, seen = excluded.seen";
    many::add(connection, "clicks", sums, rows, |&((link, day, referrer, agent), clicks)| {
        let (agent, clicks) = (agent as u8, clicks.cast_signed());
        [link.into(), day.into(), referrer.into(), agent.into(), clicks.into(), now.0.into()]
    })
}

/// Sums the clicks of one link, of all links, or of some domains.
pub(in crate::store::sqlite) fn stats(
    connection: &Connection,
    links: &Links,
    days: &RangeInclusive<i32>,
) -> Result<Stats, Error> {
    let (these, link) = links.condition();
    // The rows of these days, and the row of merged days, if there is one.
    let rows = format!(
        "SELECT referrer, agent, count FROM clicks WHERE {these} AND day BETWEEN ?2 AND ?3 \
         UNION ALL SELECT referrer, agent, count FROM clicks WHERE {these} AND day = ?4"
    );
    let (first, last) = ((*days.start()).max(OLDER + 1), *days.end());
    let older = folded::within(connection, (&these, link), first, last)?;
    let counted = older.as_ref().map(|_| OLDER);
    let days: Vec<TimeCount> = connection
        .prepare_cached(&format!(
            "SELECT day, sum(count), sum(iif(agent = {}, count, 0)) FROM clicks \
             WHERE {these} AND day BETWEEN ?2 AND ?3 GROUP BY day ORDER BY day",
            Agent::Bot as u8
        ))?
        .query_map(params![link, first, last], |row| {
            Ok(TimeCount { name: format_day(row.get(0)?), clicks: row.get(1)?, bots: row.get(2)? })
        })?
        .collect::<Result<_, _>>()?;
    let referrers = breakdown(
        connection,
        &format!(
            "SELECT referrer, sum(count) AS clicks FROM ({rows}) \
             GROUP BY referrer ORDER BY clicks DESC, referrer LIMIT {TOP_REFERRERS}"
        ),
        params![link, first, last, counted],
        |row| row.get(0),
    )?;
    let agents = breakdown(
        connection,
        &format!(
            "SELECT agent, sum(count) AS clicks FROM ({rows}) GROUP BY agent ORDER BY clicks DESC, agent"
        ),
        params![link, first, last, counted],
        |row| Ok(Agent::from_u8(row.get(0)?).name().to_owned()),
    )?;
    let countries = breakdown(
        connection,
        &format!(
            "SELECT country, sum(count) AS clicks FROM click_countries \
             WHERE {these} AND (day BETWEEN ?2 AND ?3 OR day = ?4) GROUP BY country ORDER BY clicks DESC, country"
        ),
        params![link, first, last, counted],
        |row| row.get(0),
    )?;
    let told_apart: u64 = days.iter().map(|day| day.clicks).sum();
    let clicks = told_apart + older.as_ref().map_or(0, |older| older.clicks);
    Ok(Stats { clicks, days, hours: Vec::new(), referrers, agents, countries, older })
}

fn breakdown(
    connection: &Connection,
    query: &str,
    parameters: impl Params,
    name: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<String>,
) -> Result<Vec<Count>, Error> {
    let mut statement = connection.prepare_cached(query)?;
    let rows = statement.query_map(parameters, |row| Ok(Count { name: name(row)?, clicks: row.get(1)? }))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
