//! Click limits: nodes are granted a few clicks at a time, so that all of them together never exceed the limit.

use std::sync::atomic::{AtomicBool, Ordering};

use postgres::{Pool, Session};

use crate::store::{Error, Lease};

use crate::store::postgres::values::{count, integer, values};

/// The most clicks of one grant.
const MOST: u64 = 256;

/// A grant is this fraction of what is left, so the last clicks are granted one by one.
const SHARE: i64 = 16;

/// How many flushes are searched for clicks of a link. More flushes wait only after a long time without a database.
const FLUSHES: i64 = 256;

/// Grants some clicks of a link.
pub async fn lease(pool: &Pool, link: i64) -> Result<Lease, Error> {
    let session = pool.get().await?;
    // Clicks from before nodes knew of the limit have no grant. They count once they are added up.
    let used = "greatest(m.taken, coalesce(t.clicks, 0))";
    // The statement reads and writes one version of the row. If another node was first, the server evaluates it again.
    let share = format!("greatest(1, least($2, (l.max_clicks - {used}) / {SHARE}))");
    let grant = format!(
        "UPDATE limits AS m SET taken = {used} + {share}, granted = {share} \
         FROM links AS l LEFT JOIN totals AS t ON t.link = l.id \
         WHERE m.link = $1 AND l.id = $1 AND {used} < l.max_clicks RETURNING m.granted"
    );
    let begin = "INSERT INTO limits (link, taken) SELECT id, 0 FROM links WHERE id = $1 AND max_clicks IS NOT NULL \
         ON CONFLICT DO NOTHING";
    for first in [true, false] {
        let rows = session.query(&grant, values![link => INT8, integer(MOST) => INT8]).await?;
        if let Some(row) = rows.first() {
            return Ok(Lease::Granted(count(row.try_get(0)?)));
        }
        if !first || session.execute(begin, values![link => INT8]).await? == 0 {
            break;
        }
    }
    Ok(Lease::UsedUp)
}

/// Starts a new limit of each link from the clicks that the database knows: those added up, those waiting to be added
/// up, and those granted under an earlier limit. A limit that the link already has goes on.
pub async fn begin(session: &Session, links: &[i64]) -> Result<(), Error> {
    let sql = "INSERT INTO limits (link, taken) SELECT l.link, least(9223372036854775807, \
         coalesce(t.clicks, 0) + coalesce(w.clicks, 0))::int8 \
         FROM unnest($1::int8[]) AS l (link) LEFT JOIN totals AS t ON t.link = l.link \
         LEFT JOIN (SELECT c.link, sum(c.count) AS clicks \
         FROM (SELECT links, counts FROM click_flushes LIMIT $2) AS f, unnest(f.links, f.counts) AS c (link, count) \
         WHERE c.link IN (SELECT unnest($1::int8[])) GROUP BY c.link) AS w ON w.link = l.link ORDER BY l.link \
         ON CONFLICT (link) DO UPDATE SET taken = greatest(limits.taken, excluded.taken)";
    session.execute(sql, values![links => INT8_ARRAY, FLUSHES => INT8]).await?;
    Ok(())
}

/// Returns unused grants, of which a link may have several. They are locked in the order in which [`begin`] does it, so
/// that the two never deadlock. A failure before it is `committing` changes nothing.
pub async fn give_back(pool: &Pool, grants: &[(i64, u64)], committing: &AtomicBool) -> Result<(), Error> {
    let links: Vec<i64> = grants.iter().map(|(link, _)| *link).collect();
    let clicks: Vec<i64> = grants.iter().map(|(_, clicks)| integer(*clicks)).collect();
    let sql = "WITH locked AS (SELECT link FROM limits WHERE link = ANY($1) ORDER BY link FOR UPDATE), \
         given AS (SELECT link, sum(clicks)::int8 AS clicks FROM unnest($1::int8[], $2::int8[]) AS g (link, clicks) \
         GROUP BY link) \
         UPDATE limits SET taken = greatest(0, taken - given.clicks) FROM given JOIN locked USING (link) \
         WHERE limits.link = given.link";
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    transaction.execute(sql, values![links => INT8_ARRAY, clicks => INT8_ARRAY]).await?;
    committing.store(true, Ordering::Relaxed);
    transaction.commit().await?;
    Ok(())
}
