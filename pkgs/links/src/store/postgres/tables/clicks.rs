//! Clicks: each flush of a node adds one row of arrays. The first node that takes the lock adds them up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use postgres::{Pool, Row, Session, Transaction};

use crate::agent::Agent;
use crate::store::rules::clicks::{ALL, OLDER, OTHER, ROWS_PER_DAY, ROWS_PER_DAY_OF_ALL, TOP_REFERRERS};
use crate::store::{Click, Count, CountryClick, Error, Older, Stats, TimeCount};
use crate::when::{Timestamp, format_day};

use super::scope::Links;
use super::{behind, countries, hours, links_from, patient};
use crate::store::postgres::values::{count, integer, values};

/// The most entries per flush. A larger batch becomes several flushes, each of which is quickly sent and added up.
pub const ENTRIES: usize = 4_096;

/// The most flushes that one transaction adds up.
const FLUSHES: i64 = 64;

/// The most entries that one transaction adds up. A single larger flush, from a release without [`ENTRIES`], is still
/// added up.
const ENTRIES_ADDED_UP: i64 = 4 * ENTRIES as i64;

/// The lock of the node that adds up, within a transaction.
const ADDING: &str = "hashtextextended('linerate-links clicks', 0)";

/// The lock of the node that merges days. It is another one, since merging may go on for hours, and clicks are added
/// up meanwhile. These hardly ever belong to the same days; if so, they count, and are merged the next time.
const MERGING: &str = "hashtextextended('linerate-links merge', 0)";

/// How long a node that sends nothing is remembered, in seconds.
const NODE_SECONDS: i64 = 30 * 24 * 60 * 60;

/// The key of a row of counts: link, day, referrer and agent.
type Key = (i64, i32, String, i16);

/// Adds a node's clicks. Repeating it adds them only once.
pub async fn flush(
    pool: &Pool,
    node: i64,
    seq: i64,
    referrers: &[String],
    clicks: &[Click],
    by_country: &[CountryClick],
) -> Result<(), Error> {
    let referrer = |index: u32| referrers.get(index as usize).map_or("", String::as_str);
    let links: Vec<i64> = clicks.iter().map(|click| click.link).collect();
    let days: Vec<i32> = clicks.iter().map(|click| click.day()).collect();
    let hours: Vec<i32> = clicks.iter().map(|click| click.hour).collect();
    // Only printable ASCII, so that no text has a NUL, which PostgreSQL refuses.
    let referrers: Vec<&str> = clicks.iter().map(|click| referrer(click.referrer)).collect();
    let agents: Vec<i16> = clicks.iter().map(|click| i16::from(click.agent as u8)).collect();
    let counts: Vec<i64> = clicks.iter().map(|click| i64::from(click.count)).collect();
    let countries = countries::Columns::of(by_country);
    // Locks the node's row first. If a flush is sent again while it is being added up, it waits and then sees that it
    // was added. The row is written each time, so that nobody deletes the node in the meantime.
    let sql = "WITH held AS (INSERT INTO click_nodes (node, folded, seen) VALUES ($1, 0, $8) \
         ON CONFLICT (node) DO UPDATE SET seen = excluded.seen RETURNING folded), \
         written AS (INSERT INTO click_flushes (node, seq, links, days, referrers, agents, counts, hours, \
         country_links, country_days, countries, country_counts) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $9, $10, $11, $12, $13 FROM held WHERE folded < $2 ON CONFLICT DO NOTHING RETURNING seq) \
         SELECT folded >= $2 OR EXISTS (SELECT FROM written) \
         OR EXISTS (SELECT FROM click_flushes WHERE node = $1 AND seq = $2) FROM held";
    let values = values![
        node => INT8, seq => INT8, links => INT8_ARRAY, days => INT4_ARRAY, referrers => TEXT_ARRAY,
        agents => INT2_ARRAY, counts => INT8_ARRAY, Timestamp::now().0 => INT8, hours => INT4_ARRAY,
        countries.links => INT8_ARRAY, countries.days => INT4_ARRAY, countries.countries => TEXT_ARRAY,
        countries.counts => INT8_ARRAY,
    ];
    let rows = pool.get().await?.query(sql, values).await?;
    match rows.first().map(|row| row.try_get(0)).transpose()? {
        Some(true) => Ok(()),
        _ => Err(Error::Postgres(format!("flush {seq} of clicks is not there"))),
    }
}

/// Adds up some flushes, unless another node is doing so. Returns whether there may be more.
pub async fn add_up(pool: &Pool) -> Result<bool, Error> {
    let session = pool.get().await?;
    // Usually there are no flushes, and no transaction is needed.
    if session.query("SELECT 1 FROM click_flushes LIMIT 1", &[]).await?.is_empty() {
        return Ok(false);
    }
    let transaction = session.begin().await?;
    if !is_elected(&transaction, ADDING).await? {
        transaction.rollback().await?;
        return Ok(false);
    }
    patient(&transaction).await?;
    let added = add_up_within(&transaction).await?;
    transaction.commit().await?;
    Ok(added > 0)
}

/// Whether no other node holds this lock, which this transaction then holds to its end. Nobody waits for it: while
/// somebody does, PostgreSQL refuses all who only try.
async fn is_elected(transaction: &Transaction<'_>, lock: &str) -> Result<bool, Error> {
    let rows = transaction.query(&format!("SELECT pg_try_advisory_xact_lock({lock})"), &[]).await?;
    Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
}

/// Returns how many flushes were added up.
async fn add_up_within(transaction: &Transaction<'_>) -> Result<usize, Error> {
    let sql = "SELECT node, seq, links, days, referrers, agents, counts, hours, country_links, country_days, countries, \
         country_counts FROM (SELECT *, row_number() OVER all_before AS nth, \
         sum(cardinality(links) + coalesce(cardinality(country_links), 0)) OVER all_before AS entries FROM (SELECT * FROM click_flushes ORDER BY node, seq LIMIT $1) \
         AS first WINDOW all_before AS (ORDER BY node, seq)) AS flushes WHERE nth = 1 OR entries <= $2 ORDER BY node, seq";
    let rows = transaction.query(sql, values![FLUSHES => INT8, ENTRIES_ADDED_UP => INT8]).await?;
    let (mut nodes, mut seqs): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let mut sums: BTreeMap<Key, i64> = BTreeMap::new();
    let (mut by_hour, mut by_country) = (hours::Sums::default(), countries::Sums::default());
    for row in &rows {
        nodes.push(row.try_get(0)?);
        seqs.push(row.try_get(1)?);
        let (links, days): (Vec<i64>, Vec<i32>) = (row.try_get(2)?, row.try_get(3)?);
        let (referrers, agents): (Vec<String>, Vec<i16>) = (row.try_get(4)?, row.try_get(5)?);
        let counts: Vec<i64> = row.try_get(6)?;
        // NULL from a node that counts no hours.
        let hours: Option<Vec<i32>> = row.try_get(7)?;
        let told = links.iter().zip(hours.iter().flatten()).zip(&agents).zip(&counts);
        by_country.add(row, 8)?;
        told.for_each(|(((link, hour), agent), count)| by_hour.add((*link, *hour), *agent, *count));
        let keys = links.into_iter().zip(days).zip(referrers).zip(agents);
        for ((((link, day), referrer), agent), count) in keys.zip(counts) {
            let sum: &mut i64 = sums.entry((link, day, referrer, agent)).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let done = "UPDATE click_nodes SET folded = greatest(folded, done.seq), seen = $3 FROM \
         (SELECT node, max(seq) AS seq FROM unnest($1::int8[], $2::int8[]) AS f (node, seq) GROUP BY node) AS done \
         WHERE click_nodes.node = done.node";
    let now = Timestamp::now();
    transaction.execute(done, values![nodes => INT8_ARRAY, seqs => INT8_ARRAY, now.0 => INT8]).await?;
    let gone =
        "DELETE FROM click_flushes WHERE (node, seq) IN (SELECT * FROM unnest($1::int8[], $2::int8[]))";
    transaction.execute(gone, values![nodes => INT8_ARRAY, seqs => INT8_ARRAY]).await?;
    let forget = "DELETE FROM click_nodes WHERE seen < $1 \
         AND NOT EXISTS (SELECT FROM click_flushes WHERE click_flushes.node = click_nodes.node)";
    transaction.execute(forget, values![now.0 - NODE_SECONDS => INT8]).await?;

    let mut totals: BTreeMap<i64, i64> = BTreeMap::new();
    for ((link, ..), clicks) in &sums {
        let total = totals.entry(*link).or_default();
        *total = total.saturating_add(*clicks);
    }
    // Include links whose clicks came with another flush.
    for link in by_country.links() {
        totals.entry(link).or_default();
    }
    let there = add_to_totals(transaction, &totals).await?;
    // Clicks of deleted links are dropped.
    sums.retain(|(link, ..), _| there.contains(link));
    let mut all: BTreeMap<Key, i64> = BTreeMap::new();
    for ((_, day, referrer, agent), clicks) in &sums {
        *all.entry((ALL, *day, referrer.clone(), *agent)).or_default() += clicks;
    }
    sums.append(&mut all);
    add_by_day(transaction, sums, now).await?;
    by_hour.store(transaction, &there).await?;
    by_country.store(transaction, &there).await?;
    Ok(rows.len())
}

/// Adds to the total clicks of links. Returns the links that exist.
pub async fn add_to_totals(session: &Session, totals: &BTreeMap<i64, i64>) -> Result<HashSet<i64>, Error> {
    let (links, clicks): (Vec<i64>, Vec<i64>) = totals.iter().unzip();
    // An imported count may be near the largest integer; one more click must not fail the transaction.
    let sql = "INSERT INTO totals (link, clicks) SELECT l.id, s.clicks FROM unnest($1::int8[], $2::int8[]) \
         AS s (link, clicks) JOIN links l ON l.id = s.link ORDER BY l.id ON CONFLICT (link) DO UPDATE SET \
         clicks = least(totals.clicks, 9223372036854775807 - excluded.clicks) + excluded.clicks RETURNING link";
    let rows = session.query(sql, values![links => INT8_ARRAY, clicks => INT8_ARRAY]).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Keys, column by column.
#[derive(Default)]
struct Columns<'a> {
    links: Vec<i64>,
    days: Vec<i32>,
    referrers: Vec<&'a str>,
    agents: Vec<i16>,
    counts: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(sums: impl IntoIterator<Item = (&'a Key, &'a i64)>) -> Self {
        let mut columns = Self::default();
        for ((link, day, referrer, agent), count) in sums {
            columns.links.push(*link);
            columns.days.push(*day);
            columns.referrers.push(referrer);
            columns.agents.push(*agent);
            columns.counts.push(*count);
        }
        columns
    }

    /// Runs a statement with these keys and the time, which is `$6`.
    async fn run(&self, session: &Session, sql: &str, now: Timestamp) -> Result<Vec<Row>, Error> {
        let values = values![
            self.links => INT8_ARRAY, self.days => INT4_ARRAY, self.referrers => TEXT_ARRAY,
            self.agents => INT2_ARRAY, self.counts => INT8_ARRAY, now.0 => INT8,
        ];
        Ok(session.query(sql, values).await?)
    }
}

/// The [`Columns`] within a statement.
const GIVEN: &str = "unnest($1::int8[], $2::int4[], $3::text[], $4::int2[], $5::int8[]) \
    AS given (link, day, referrer, agent, count)";

/// Adds counts to existing rows, and inserts others, up to the limit per link and day.
async fn add_by_day(session: &Session, mut sums: BTreeMap<Key, i64>, now: Timestamp) -> Result<(), Error> {
    if sums.is_empty() {
        return Ok(());
    }
    let bump = format!(
        "UPDATE clicks SET count = clicks.count + given.count, seen = $6 FROM {GIVEN} \
         WHERE (clicks.link, clicks.day, clicks.referrer, clicks.agent) = (given.link, given.day, given.referrer, \
         given.agent) RETURNING clicks.link, clicks.day, clicks.referrer, clicks.agent"
    );
    for row in Columns::of(&sums).run(session, &bump, now).await? {
        sums.remove(&(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?));
    }
    if sums.is_empty() {
        return Ok(());
    }
    let mut by_day: BTreeMap<(i64, i32), Vec<(Key, i64)>> = BTreeMap::new();
    for (key, clicks) in sums {
        by_day.entry((key.0, key.1)).or_default().push((key, clicks));
    }
    let (links, days): (Vec<i64>, Vec<i32>) = by_day.keys().copied().unzip();
    let sql = "SELECT link, day, count(*) FROM clicks \
         WHERE (link, day) IN (SELECT * FROM unnest($1::int8[], $2::int4[])) GROUP BY link, day";
    let mut rows: HashMap<(i64, i32), usize> = HashMap::new();
    for row in session.query(sql, values![links => INT8_ARRAY, days => INT4_ARRAY]).await? {
        let there: i64 = row.try_get(2)?;
        rows.insert((row.try_get(0)?, row.try_get(1)?), usize::try_from(there).unwrap_or(usize::MAX));
    }
    let mut made: BTreeMap<Key, i64> = BTreeMap::new();
    for ((link, day), mut new) in by_day {
        let most = if link == ALL { ROWS_PER_DAY_OF_ALL } else { ROWS_PER_DAY };
        // As in SQLite: at most half of the rows are new ones, namely those with the most visits.
        new.sort_unstable_by_key(|((_, _, referrer, _), clicks)| (!referrer.is_empty(), Reverse(*clicks)));
        let named = new.len().min(most / 2);
        let there = rows.get(&(link, day)).copied().unwrap_or(0);
        if there + named > most {
            let excess = there + named - most + most / 20;
            for (agent, clicks) in evict(session, (link, day), integer(excess as u64)).await? {
                *made.entry((link, day, OTHER.to_owned(), agent)).or_default() += clicks;
            }
        }
        for (index, (key, clicks)) in new.into_iter().enumerate() {
            let key = if index < named { key } else { (link, day, OTHER.to_owned(), key.3) };
            *made.entry(key).or_default() += clicks;
        }
    }
    let insert = format!(
        "INSERT INTO clicks (link, day, referrer, agent, count, seen) \
         SELECT link, day, referrer, agent, count, $6 FROM {GIVEN} ON CONFLICT (link, day, referrer, agent) \
         DO UPDATE SET count = clicks.count + excluded.count, seen = excluded.seen"
    );
    Columns::of(&made).run(session, &insert, now).await?;
    Ok(())
}

/// Deletes a day's rows with the fewest visits. Returns their counts by agent.
async fn evict(session: &Session, (link, day): (i64, i32), excess: i64) -> Result<Vec<(i16, i64)>, Error> {
    let sql = "DELETE FROM clicks WHERE link = $1 AND day = $2 AND (referrer, agent) IN (SELECT referrer, agent \
         FROM clicks WHERE link = $1 AND day = $2 AND referrer NOT IN ('', $3) ORDER BY count, seen LIMIT $4) \
         RETURNING agent, count";
    let rows = session.query(sql, values![link => INT8, day => INT4, OTHER => TEXT, excess => INT8]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Merges days older than `before`, of as many links from `from` on as one job may: at most `most` rows, the oldest of
/// each link first. Returns where to continue, which is `from` again if these links may have more. Returns `None` once
/// all are done, and while another node is merging, which then goes on.
pub async fn fold_days(pool: &Pool, before: i32, from: i64, most: usize) -> Result<Option<i64>, Error> {
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    if !is_elected(&transaction, MERGING).await? {
        transaction.rollback().await?;
        return Ok(None);
    }
    patient(&transaction).await?;
    let links = links_from(&transaction, "clicks", from).await?;
    let next = behind(&links);
    // Link by link, which costs one look at the index for each, however many rows stay. If all were sorted together,
    // each job might read all of their old rows.
    let sql = "DELETE FROM clicks WHERE ctid = ANY(ARRAY(SELECT old.place FROM unnest($1::int8[]) AS these (link), \
         LATERAL (SELECT ctid AS place FROM clicks WHERE clicks.link = these.link AND day > $2 AND day < $3 \
         ORDER BY day, referrer, agent LIMIT $4) AS old LIMIT $4)) RETURNING link, day, referrer, agent, count";
    let values = values![links => INT8_ARRAY, OLDER => INT4, before => INT4, integer(most as u64) => INT8];
    let rows = transaction.query(sql, values).await?;
    let mut sums: BTreeMap<Key, i64> = BTreeMap::new();
    let mut folded: BTreeMap<i64, (i32, i32)> = BTreeMap::new();
    for row in &rows {
        let (link, day): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
        *sums.entry((link, OLDER, row.try_get(2)?, row.try_get(3)?)).or_default() +=
            row.try_get::<_, i64>(4)?;
        let days = folded.entry(link).or_insert((day, day));
        *days = (days.0.min(day), days.1.max(day));
    }
    add_by_day(&transaction, sums, Timestamp::of_day(before)).await?;
    let links: Vec<i64> = folded.keys().copied().collect();
    countries::fold(&transaction, &links, before).await?;
    let (first, last): (Vec<i32>, Vec<i32>) = folded.values().copied().unzip();
    let sql = "INSERT INTO folded_days (link, first, last) SELECT * FROM unnest($1::int8[], $2::int4[], $3::int4[]) \
         ON CONFLICT (link) DO UPDATE SET first = least(folded_days.first, excluded.first), \
         last = greatest(folded_days.last, excluded.last)";
    transaction.execute(sql, values![links => INT8_ARRAY, first => INT4_ARRAY, last => INT4_ARRAY]).await?;
    transaction.commit().await?;
    Ok(if rows.len() == most { Some(from) } else { next })
}

/// Sums clicks.
pub async fn stats(session: &Session, links: &Links, days: &RangeInclusive<i32>) -> Result<Stats, Error> {
    let (these, link, domains) = links.condition();
    let (first, last) = ((*days.start()).max(OLDER + 1), *days.end());
    let sql = format!("SELECT min(first), max(last) FROM folded_days WHERE {these}");
    let rows = session.query(&sql, values![link => INT8, domains => INT8_ARRAY]).await?;
    let folded: Option<(Option<i32>, Option<i32>)> =
        rows.first().map(|row| Ok::<_, Error>((row.try_get(0)?, row.try_get(1)?))).transpose()?;
    let folded = match folded {
        Some((Some(oldest), Some(newest))) if oldest >= first && newest <= last => Some((oldest, newest)),
        _ => None,
    };
    // If nothing was merged, no row has this day.
    let older = folded.map_or(i32::MAX, |_| OLDER);
    let breakdown = async |sql: String| {
        let values = values![link => INT8, domains => INT8_ARRAY, first => INT4, last => INT4, older => INT4];
        Ok::<_, Error>(session.query(&sql, values).await?)
    };
    let rows = format!("FROM clicks WHERE {these} AND (day BETWEEN $3 AND $4 OR day = $5)");
    let by_day = breakdown(format!(
        "SELECT day, sum(count)::int8, coalesce(sum(count) FILTER (WHERE agent = {}), 0)::int8 {rows} \
         GROUP BY day ORDER BY day",
        Agent::Bot as u8
    ))
    .await?;
    let (mut days, mut clicks_of_older, mut clicks) = (Vec::new(), 0, 0);
    for row in &by_day {
        let (day, sum): (i32, u64) = (row.try_get(0)?, count(row.try_get(1)?));
        clicks += sum;
        if day == OLDER {
            clicks_of_older = sum;
        } else {
            days.push(TimeCount { name: format_day(day), clicks: sum, bots: count(row.try_get(2)?) });
        }
    }
    let referrers = breakdown(format!(
        "SELECT referrer, sum(count)::int8 AS clicks {rows} GROUP BY referrer ORDER BY clicks DESC, referrer \
         LIMIT {TOP_REFERRERS}"
    ))
    .await?;
    let referrers =
        referrers.iter().map(|row| Ok(Count { name: row.try_get(0)?, clicks: count(row.try_get(1)?) }));
    let agents = breakdown(format!(
        "SELECT agent, sum(count)::int8 AS clicks {rows} GROUP BY agent ORDER BY clicks DESC, agent"
    ))
    .await?;
    let agents = agents.iter().map(|row| {
        let agent = Agent::from_u8(u8::try_from(row.try_get::<_, i16>(0)?).unwrap_or(0));
        Ok(Count { name: agent.name().to_owned(), clicks: count(row.try_get(1)?) })
    });
    let countries = breakdown(format!(
        "SELECT country, sum(count)::int8 AS clicks FROM click_countries WHERE {these} \
         AND (day BETWEEN $3 AND $4 OR day = $5) GROUP BY country ORDER BY clicks DESC, country"
    ))
    .await?;
    let countries =
        countries.iter().map(|row| Ok(Count { name: row.try_get(0)?, clicks: count(row.try_get(1)?) }));
    let older = folded.map(|(oldest, newest)| Older {
        from: format_day(oldest),
        to: format_day(newest),
        clicks: clicks_of_older,
    });
    Ok(Stats {
        clicks,
        days,
        hours: Vec::new(),
        referrers: referrers.collect::<Result<_, Error>>()?,
        agents: agents.collect::<Result<_, Error>>()?,
        countries: countries.collect::<Result<_, Error>>()?,
        older,
    })
}
