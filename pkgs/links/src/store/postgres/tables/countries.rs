//! Clicks by country and day, if countries are counted. A trigger deletes them with their link, since older programs
//! without countries delete links too.

use std::collections::{BTreeMap, HashSet};

use postgres::{Row, Session};

use crate::store::postgres::values::values;
use crate::store::rules::clicks::{ALL, OLDER};
use crate::store::{CountryClick, Error};

/// A node's counts, column by column.
pub struct Columns<'a> {
    pub links: Vec<i64>,
    pub days: Vec<i32>,
    pub countries: Vec<&'a str>,
    pub counts: Vec<i64>,
}

impl<'a> Columns<'a> {
    pub fn of(clicks: &'a [CountryClick]) -> Self {
        Self {
            links: clicks.iter().map(|click| click.link).collect(),
            days: clicks.iter().map(|click| click.day).collect(),
            countries: clicks.iter().map(|click| click.country.code()).collect(),
            counts: clicks.iter().map(|click| i64::try_from(click.count).unwrap_or(i64::MAX)).collect(),
        }
    }
}

/// Clicks of links by day and country.
#[derive(Default)]
pub struct Sums(BTreeMap<(i64, i32, String), i64>);

impl Sums {
    /// Adds the clicks of a flush, whose columns start at index `first`. Does nothing for a node that counts no
    /// countries.
    pub fn add(&mut self, row: &Row, first: usize) -> Result<(), Error> {
        let (links, days): (Option<Vec<i64>>, Option<Vec<i32>>) =
            (row.try_get(first)?, row.try_get(first + 1)?);
        let (countries, counts): (Option<Vec<String>>, Option<Vec<i64>>) =
            (row.try_get(first + 2)?, row.try_get(first + 3)?);
        let keys = links.into_iter().flatten().zip(days.into_iter().flatten());
        let named = keys.zip(countries.into_iter().flatten()).zip(counts.into_iter().flatten());
        for (((link, day), country), count) in named {
            let sum = self.0.entry((link, day, country)).or_default();
            *sum = sum.saturating_add(count);
        }
        Ok(())
    }

    /// The links of these clicks.
    pub fn links(&self) -> Vec<i64> {
        let mut links: Vec<i64> = self.0.keys().map(|(link, ..)| *link).collect();
        links.dedup();
        links
    }

    /// Adds the sums to the stored ones, for the links in `there`.
    pub async fn store(mut self, session: &Session, there: &HashSet<i64>) -> Result<(), Error> {
        self.0.retain(|(link, ..), _| there.contains(link));
        let mut all: BTreeMap<(i64, i32, String), i64> = BTreeMap::new();
        for ((_, day, country), count) in &self.0 {
            let sum = all.entry((ALL, *day, country.clone())).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.0.append(&mut all);
        if self.0.is_empty() {
            return Ok(());
        }
        let links: Vec<i64> = self.0.keys().map(|(link, ..)| *link).collect();
        let days: Vec<i32> = self.0.keys().map(|(_, day, _)| *day).collect();
        let countries: Vec<&str> = self.0.keys().map(|(.., country)| country.as_str()).collect();
        let counts: Vec<i64> = self.0.values().copied().collect();
        let sql = "INSERT INTO click_countries (link, day, country, count) \
             SELECT * FROM unnest($1::int8[], $2::int4[], $3::text[], $4::int8[]) \
             ON CONFLICT (link, day, country) DO UPDATE SET count = click_countries.count + excluded.count";
        let values =
            values![links => INT8_ARRAY, days => INT4_ARRAY, countries => TEXT_ARRAY, counts => INT8_ARRAY];
        session.execute(sql, values).await?;
        Ok(())
    }
}

/// Merges these links' days before `before`.
pub async fn fold(session: &Session, links: &[i64], before: i32) -> Result<(), Error> {
    let sql = "WITH old AS (DELETE FROM click_countries WHERE link = ANY($1) AND day > $2 AND day < $3 \
         RETURNING link, country, count) INSERT INTO click_countries (link, day, country, count) \
         SELECT link, $2, country, sum(count)::int8 FROM old GROUP BY link, country \
         ON CONFLICT (link, day, country) DO UPDATE SET count = click_countries.count + excluded.count";
    session.execute(sql, values![links => INT8_ARRAY, OLDER => INT4, before => INT4]).await?;
    Ok(())
}
