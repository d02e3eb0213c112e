//! Limits of clicks: nodes are granted a few at a time, so that all of them together never answer more often.

use postgres::Pool;

use crate::store::{Error, Lease};

use super::values::{count, integer, values};

/// The most clicks of one grant.
const MOST: u64 = 256;

/// A grant has one in so many of what is left: the last clicks are granted one by one.
const SHARE: i64 = 16;

/// Grants some clicks of a link.
pub async fn lease(pool: &Pool, link: i64) -> Result<Lease, Error> {
    let session = pool.get().await?;
    // What is read and written is one version of the row: the server looks again where another node was first.
    let share = format!("greatest(1, least($2, (l.max_clicks - m.taken) / {SHARE}))");
    let grant = format!(
        "UPDATE limits AS m SET taken = m.taken + {share}, granted = {share} FROM links AS l \
         WHERE m.link = $1 AND l.id = $1 AND m.taken < l.max_clicks RETURNING m.granted"
    );
    let begin = "INSERT INTO limits (link, taken) SELECT id, coalesce((SELECT clicks FROM totals WHERE link = $1), 0) \
         FROM links WHERE id = $1 AND max_clicks IS NOT NULL ON CONFLICT DO NOTHING";
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

/// Gives back what was granted and not needed.
pub async fn give_back(pool: &Pool, grants: &[(i64, u64)]) -> Result<(), Error> {
    let links: Vec<i64> = grants.iter().map(|(link, _)| *link).collect();
    let clicks: Vec<i64> = grants.iter().map(|(_, clicks)| integer(*clicks)).collect();
    let sql = "UPDATE limits SET taken = greatest(0, taken - given.clicks) \
         FROM unnest($1::int8[], $2::int8[]) AS given (link, clicks) WHERE limits.link = given.link";
    pool.get().await?.execute(sql, values![links => INT8_ARRAY, clicks => INT8_ARRAY]).await?;
    Ok(())
}
