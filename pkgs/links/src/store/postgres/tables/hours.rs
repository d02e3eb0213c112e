//! Clicks by hour, as long as hours are kept. A trigger deletes them with their link, since older programs without
//! hours delete links too.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use postgres::{Pool, Session};

use super::scope::Links;
use super::{behind, links_from, patient};
use crate::agent::Agent;
use crate::store::postgres::values::{count, values};
use crate::store::rules::clicks::ALL;
use crate::store::{Error, TimeCount};
use crate::when::format_hour;

/// Clicks of links in hours: by everybody, and by bots.
#[derive(Default)]
pub struct Sums(BTreeMap<(i64, i32), [i64; 2]>);

impl Sums {
    /// Adds clicks of an agent to a link's hour, and to the same hour of all links.
    pub fn add(&mut self, (link, hour): (i64, i32), agent: i16, clicks: i64) {
        let bots = if agent == i16::from(Agent::Bot as u8) { clicks } else { 0 };
        let sums = self.0.entry((link, hour)).or_default();
        *sums = [sums[0].saturating_add(clicks), sums[1].saturating_add(bots)];
    }

    /// Adds the sums to the stored ones, for the links in `there`.
    pub async fn store(mut self, session: &Session, there: &HashSet<i64>) -> Result<(), Error> {
        self.0.retain(|(link, _), _| there.contains(link));
        let mut all: BTreeMap<(i64, i32), [i64; 2]> = BTreeMap::new();
        for ((_, hour), [clicks, bots]) in &self.0 {
            let sums = all.entry((ALL, *hour)).or_default();
            *sums = [sums[0].saturating_add(*clicks), sums[1].saturating_add(*bots)];
        }
        self.0.append(&mut all);
        if self.0.is_empty() {
            return Ok(());
        }
        let (links, hours): (Vec<i64>, Vec<i32>) = self.0.keys().copied().unzip();
        let (clicks, bots): (Vec<i64>, Vec<i64>) =
            self.0.values().map(|[clicks, bots]| (*clicks, *bots)).unzip();
        let sql = "INSERT INTO click_hours (link, hour, count, bots) \
             SELECT * FROM unnest($1::int8[], $2::int4[], $3::int8[], $4::int8[]) ON CONFLICT (link, hour) DO UPDATE \
             SET count = click_hours.count + excluded.count, bots = click_hours.bots + excluded.bots";
        let values =
            values![links => INT8_ARRAY, hours => INT4_ARRAY, clicks => INT8_ARRAY, bots => INT8_ARRAY];
        session.execute(sql, values).await?;
        Ok(())
    }
}

/// Sums of hours, oldest first.
pub async fn sums(
    session: &Session,
    links: &Links,
    hours: &RangeInclusive<i32>,
) -> Result<Vec<TimeCount>, Error> {
    let (these, link, domains) = links.condition();
    let sql = format!(
        "SELECT hour, sum(count)::int8, sum(bots)::int8 FROM click_hours WHERE {these} AND hour BETWEEN $3 AND $4 \
         GROUP BY hour ORDER BY hour"
    );
    let values = values![link => INT8, domains => INT8_ARRAY, *hours.start() => INT4, *hours.end() => INT4];
    let rows = session.query(&sql, values).await?;
    let one = |row: &postgres::Row| {
        Ok(TimeCount {
            name: format_hour(row.try_get(0)?),
            clicks: count(row.try_get(1)?),
            bots: count(row.try_get(2)?),
        })
    };
    rows.iter().map(one).collect()
}

/// Deletes hours before `before`, of as many links from `from` on as one job may. Returns where to continue, or `None`
/// once all are done.
pub async fn forget(pool: &Pool, before: i32, from: i64) -> Result<Option<i64>, Error> {
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    patient(&transaction).await?;
    let links = links_from(&transaction, "click_hours", from).await?;
    let sql = "DELETE FROM click_hours WHERE link = ANY($1) AND hour < $2";
    transaction.execute(sql, values![links => INT8_ARRAY, before => INT4]).await?;
    transaction.commit().await?;
    Ok(behind(&links))
}
