//! Lists, with the same cursors as in SQLite, searched as far as [`Walk`] allows.

use postgres::types::{ToSql, Type};
use postgres::{Parameter, Pool, Row, Session};

use crate::domains::{DomainId, InDomains};
use crate::link::Link;
use crate::store::rules::links::number_of;
use crate::store::rules::list::{Place, check_search, order, pattern, read_cursor};
use crate::store::rules::walk::{FEW, Next, Stretch, Walk, limit_of, page_of, stretches};
use crate::store::{Error, ListQuery, Page, Sort};

use super::links::{SELECT, link_of};
use crate::store::postgres::values::values;

/// The ids of a selection of domains; `None` for all domains.
pub fn ids(domains: &InDomains) -> Option<Vec<i64>> {
    match domains {
        InDomains::All => None,
        InDomains::Only(domains) => Some(domains.iter().map(|domain| domain.0).collect()),
    }
}

pub async fn list(pool: &Pool, query: &ListQuery) -> Result<Page, Error> {
    walk(&*pool.get().await?, query, Walk::of(query)).await
}

/// Reads a page, as far as this walk allows.
pub async fn walk(session: &Session, query: &ListQuery, mut walk: Walk) -> Result<Page, Error> {
    let limit = limit_of(query);
    let last = query.cursor.as_ref().map(|cursor| read_cursor(cursor, query)).transpose()?;
    if last.iter().flatten().any(|place| matches!(place, Place::Text(text) if text.contains('\0'))) {
        return Err(Error::field("cursor", "not a cursor of this list"));
    }
    query.search.as_deref().map_or(Ok(()), check_search)?;
    // PostgreSQL's texts cannot contain NUL.
    let has_nul = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('\0'));
    if has_nul(&query.search) || has_nul(&query.tag) || query.domains == InDomains::Only(Vec::new()) {
        return Ok(Page::default());
    }
    let filter = Filter::of(session, query).await?;
    let stretches = if filter.is_few { vec![(Stretch::Whole, last)] } else { stretches(query, last) };
    // One more than requested shows whether there is a next page.
    let mut links = Vec::new();
    for (stretch, mut from) in stretches {
        let order = Order::of(stretch, query, &filter);
        loop {
            let most = limit + 1 - links.len();
            let is_sparse = !filter.is_few && (filter.is_sparse || order.is_sparse);
            let rows = Some(walk.rows()).filter(|_| is_sparse);
            let (found, until) = match stretch {
                Stretch::Clicked => {
                    order.clicked(session, query, from.as_deref(), (rows.unwrap_or(most), most)).await?
                }
                _ => {
                    let until = match rows {
                        Some(rows) => order.end_of_part(session, &filter, from.as_deref(), rows).await?,
                        None => None,
                    };
                    let range = (from.as_deref(), until.as_deref());
                    (order.part(session, query, &filter, range, most).await?, until)
                }
            };
            links.extend(found);
            match walk.after(stretch, until, &mut links, query) {
                Next::Page(page) => return Ok(page),
                Next::Sorted(behind) => {
                    let (whole, range) = (Order::of(Stretch::Whole, query, &filter), (Some(&*behind), None));
                    links.extend(whole.part(session, query, &filter, range, limit + 1 - links.len()).await?);
                    return Ok(page_of(links, limit, query));
                }
                Next::Part(until) => from = Some(until),
                Next::Stretch => break,
            }
        }
    }
    Ok(page_of(links, limit, query))
}

/// The conditions of a list that an index serves.
struct Filter {
    /// The domain, if the list is ordered by code within a single domain.
    domain: Option<DomainId>,
    /// Whether there are further conditions, which each link is checked against.
    is_sparse: bool,
    /// Whether an index finds so few links that all are read and sorted.
    is_few: bool,
}

impl Filter {
    async fn of(session: &Session, query: &ListQuery) -> Result<Self, Error> {
        let one = match &query.domains {
            InDomains::Only(domains) => domains.first().copied().filter(|_| domains.len() == 1),
            InDomains::All => None,
        };
        let mut is_few = false;
        if let Some(tag) = &query.tag {
            is_few = few(session, "links WHERE tags @> ARRAY[$1]", values![tag => TEXT]).await?;
        }
        if let Some(domain) = one.filter(|domain| !is_few && *domain != DomainId::DEFAULT) {
            is_few = few(session, "links WHERE named_domain = $1", values![domain.0 => INT8]).await?;
        }
        let domain = one.filter(|_| query.sort == Sort::Code);
        let is_sparse = query.tag.is_some()
            || query.search.is_some()
            || query.status.is_some()
            || (query.domains != InDomains::All && domain.is_none());
        Ok(Self { domain, is_sparse, is_few })
    }
}

/// Whether a query finds few rows. Reads no more rows than it needs to decide.
async fn few(session: &Session, of: &str, values: &[Parameter<'_>]) -> Result<bool, Error> {
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {of} LIMIT {}) AS found", FEW + 1);
    let found: i64 = session.query(&sql, values).await?.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(found <= FEW as i64)
}

/// A statement that is being built: its conditions, and their values.
#[derive(Default)]
struct Statement {
    conditions: Vec<String>,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Statement {
    /// Adds a value. Returns its placeholder.
    fn value(&mut self, value: impl ToSql + Sync + Send + 'static, of: Type) -> String {
        self.values.push((Box::new(value), of));
        format!("${}", self.values.len())
    }

    /// Adds the conditions that each link is checked against.
    fn compare(&mut self, query: &ListQuery, is_few: bool) {
        if let Some(ids) = ids(&query.domains) {
            let ids = self.value(ids, Type::INT8_ARRAY);
            self.conditions.push(format!("l.domain = ANY({ids})"));
        }
        if let Some(search) = &query.search {
            let text = self.value(pattern(search), Type::TEXT);
            self.conditions
                .push(format!("(l.code ILIKE {text} OR l.target ILIKE {text} OR l.title ILIKE {text})"));
        }
        if let Some(tag) = &query.tag {
            let tag = self.value(tag.clone(), Type::TEXT);
            // `@>` uses the index of tags, which pays off only if few links have the tag. `= ANY` does not use it.
            self.conditions.push(match is_few {
                true => format!("l.tags @> ARRAY[{tag}]"),
                false => format!("{tag} = ANY(l.tags)"),
            });
        }
        if let Some(status) = query.status {
            let status = self.value(number_of(status), Type::INT8);
            self.conditions.push(format!("l.status = {status}"));
        }
    }

    async fn run(self, session: &Session, select: &str, end: &str) -> Result<Vec<Row>, Error> {
        let conditions = match self.conditions.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", self.conditions.join(" AND ")),
        };
        let values: Vec<Parameter<'_>> =
            self.values.iter().map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone())).collect();
        Ok(session.query(&format!("{select} {conditions} {end}"), &values).await?)
    }
}

/// The order in which a stretch of a list is read.
struct Order {
    columns: &'static [&'static str],
    stretch: Stretch,
    descending: bool,
    /// Whether links that do not match may lie in between.
    is_sparse: bool,
}

impl Order {
    fn of(stretch: Stretch, query: &ListQuery, filter: &Filter) -> Self {
        let columns: &[_] = match (stretch, query.sort) {
            // No index has these orders. PostgreSQL may otherwise follow one past all other links, instead of sorting
            // the few that were found.
            (Stretch::Whole, Sort::Created) if filter.is_few => &["l.id + 0"],
            (Stretch::Whole, Sort::Updated) if filter.is_few => &["l.updated_at + 0", "l.id"],
            (Stretch::Whole, Sort::Code) if filter.is_few => &["l.domain + 0", "l.code", "l.id"],
            (Stretch::Whole, Sort::Updated) => &["l.updated_at", "l.id"],
            (Stretch::Whole, Sort::Code) => &["l.domain", "l.code", "l.id"],
            (Stretch::Whole, Sort::Clicks) => &["coalesce(t.clicks, 0)", "l.id"],
            (Stretch::Clicked, _) => &["clicks", "link"],
            (Stretch::Whole | Stretch::Unclicked, _) => &["l.id"],
        };
        Self { columns, stretch, descending: query.descending, is_sparse: stretch == Stretch::Unclicked }
    }

    /// Reads the matching links among the next `rows` links by clicks, at most `most`. Also returns the place where
    /// these rows end, if there are more. There is no index for clicks: with one, no row of totals could be updated in
    /// place (HOT).
    async fn clicked(
        &self,
        session: &Session,
        query: &ListQuery,
        from: Option<&[Place]>,
        (rows, most): (usize, usize),
    ) -> Result<(Vec<Link>, Option<Vec<Place>>), Error> {
        let whole = Filter { domain: None, is_sparse: true, is_few: false };
        let mut statement = self.between(&whole, (from, None));
        let count = statement.value(rows as i64, Type::INT8);
        let end = format!("ORDER BY {} LIMIT {count}", order(self.columns, self.descending));
        let sums = statement.run(session, "SELECT clicks, link FROM totals", &end).await?;
        let ids = sums.iter().map(|row| row.try_get(1)).collect::<Result<Vec<i64>, _>>()?;
        let end = match sums.last().filter(|_| sums.len() == rows) {
            Some(last) => Some(vec![Place::Number(last.try_get(0)?), Place::Number(last.try_get(1)?)]),
            None => None,
        };
        let mut statement = Statement::default();
        let ids = statement.value(ids, Type::INT8_ARRAY);
        statement.compare(query, false);
        // Reads the links in the order of the sums.
        let select =
            format!("{SELECT} JOIN unnest({ids}) WITH ORDINALITY AS sums (link, place) ON sums.link = l.id");
        let most = statement.value(most as i64, Type::INT8);
        let links = statement.run(session, &select, &format!("ORDER BY sums.place LIMIT {most}")).await?;
        Ok((links.iter().map(link_of).collect::<Result<_, _>>()?, end))
    }

    /// The place of the last of the next `rows` links; `None` if there are fewer.
    async fn end_of_part(
        &self,
        session: &Session,
        filter: &Filter,
        from: Option<&[Place]>,
        rows: usize,
    ) -> Result<Option<Vec<Place>>, Error> {
        let mut statement = self.between(filter, (from, None));
        let skipped = statement.value(rows as i64 - 1, Type::INT8);
        let select = format!("SELECT {} FROM links l", self.columns.join(", "));
        let end = format!("ORDER BY {} LIMIT 1 OFFSET {skipped}", order(self.columns, self.descending));
        let rows = statement.run(session, &select, &end).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let place = self.columns.iter().enumerate().map(|(index, name)| {
            Ok(match *name {
                "l.code" => Place::Text(row.try_get(index)?),
                _ => Place::Number(row.try_get(index)?),
            })
        });
        place.collect::<Result<_, Error>>().map(Some)
    }

    /// Links after the first place, up to the second.
    async fn part(
        &self,
        session: &Session,
        query: &ListQuery,
        filter: &Filter,
        range: (Option<&[Place]>, Option<&[Place]>),
        most: usize,
    ) -> Result<Vec<Link>, Error> {
        let mut statement = self.between(filter, range);
        if self.stretch == Stretch::Unclicked {
            statement.conditions.push("coalesce(t.clicks, 0) = 0".to_owned());
        }
        statement.compare(query, filter.is_few);
        let most = statement.value(i64::try_from(most).unwrap_or(i64::MAX), Type::INT8);
        let end = format!("ORDER BY {} LIMIT {most}", order(self.columns, self.descending));
        statement.run(session, SELECT, &end).await?.iter().map(link_of).collect()
    }

    /// The conditions that an index serves.
    fn between(&self, filter: &Filter, (from, until): (Option<&[Place]>, Option<&[Place]>)) -> Statement {
        let mut statement = Statement::default();
        if let Some(domain) = filter.domain {
            let domain = statement.value(domain.0, Type::INT8);
            statement.conditions.push(format!("l.domain = {domain}"));
        }
        if self.stretch == Stretch::Clicked {
            statement.conditions.push("clicks > 0".to_owned());
        }
        let (beyond, up_to) = if self.descending { ("<", ">=") } else { (">", "<=") };
        for (sign, places) in [(beyond, from), (up_to, until)] {
            let Some(places) = places else { continue };
            // A cursor sorted by creation has its id twice.
            let places = places.iter().skip(places.len().saturating_sub(self.columns.len()));
            let marks: Vec<_> = places
                .map(|place| match place {
                    Place::Number(number) => statement.value(*number, Type::INT8),
                    Place::Text(text) => statement.value(text.clone(), Type::TEXT),
                })
                .collect();
            statement.conditions.push(format!("({}) {sign} ({})", self.columns.join(", "), marks.join(", ")));
        }
        statement
    }
}
