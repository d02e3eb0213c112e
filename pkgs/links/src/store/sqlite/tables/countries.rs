//! Clicks by country and day, if countries are counted. A trigger deletes them with their link, since older releases
//! without countries delete links too.

use std::collections::{BTreeMap, HashSet};

use rusqlite::{Connection, params};

use super::many;
use crate::store::rules::clicks::{ALL, OLDER};
use crate::store::{CountryClick, Error};

/// Adds to the clicks of existing links.
pub(in crate::store::sqlite) fn add(
    connection: &Connection,
    clicks: &[CountryClick],
    gone: &HashSet<i64>,
) -> Result<(), Error> {
    let mut sums: BTreeMap<(i64, i32, &str), u64> = BTreeMap::new();
    for click in clicks.iter().filter(|click| !gone.contains(&click.link)) {
        for link in [ALL, click.link] {
            *sums.entry((link, click.day, click.country.code())).or_default() += click.count;
        }
    }
    let rows: Vec<_> = sums.into_iter().collect();
    many::add(connection, "click_countries", "count = count + excluded.count", &rows, |&(key, clicks)| {
        let (link, day, country) = key;
        [link.into(), day.into(), country.into(), clicks.cast_signed().into()]
    })
}

/// Merges a link's days before `before`.
pub(in crate::store::sqlite) fn fold(connection: &Connection, link: i64, before: i32) -> Result<(), Error> {
    connection
        .prepare_cached(
            "INSERT INTO click_countries SELECT link, ?2, country, sum(count) FROM click_countries \
             WHERE link = ?1 AND day > ?2 AND day < ?3 GROUP BY country \
             ON CONFLICT DO UPDATE SET count = count + excluded.count",
        )?
        .execute(params![link, OLDER, before])?;
    connection
        .prepare_cached("DELETE FROM click_countries WHERE link = ?1 AND day > ?2 AND day < ?3")?
        .execute(params![link, OLDER, before])?;
    Ok(())
}
