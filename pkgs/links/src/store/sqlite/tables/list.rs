//! Lists: filtered, sorted, and paged by key instead of offset. So every page costs the same, and no link is repeated
//! or missed while others are created and deleted. If no index finds the links, they are searched part by part, as long
//! as [`Walk`] has time.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::in_domains;
use super::links::{COLUMNS, link_of};
use crate::domains::{DomainId, InDomains};
use crate::link::Link;
use crate::store::rules::links::number_of;
use crate::store::rules::list::{Place, check_search, order, pattern, read_cursor};
use crate::store::rules::walk::{FEW, Next, Stretch, Walk, add, limit_of, page_of, stretches};
use crate::store::{Error, ListQuery, Page, Sort};

pub(in crate::store::sqlite) fn list(connection: &Connection, query: &ListQuery) -> Result<Page, Error> {
    walk(connection, query, Walk::of(query))
}

/// Reads a page, as far as this walk allows.
pub(in crate::store::sqlite) fn walk(
    connection: &Connection,
    query: &ListQuery,
    mut walk: Walk,
) -> Result<Page, Error> {
    // All parts read one consistent snapshot.
    let connection = &*connection.unchecked_transaction()?;
    let limit = limit_of(query);
    let last = query.cursor.as_ref().map(|cursor| read_cursor(cursor, query)).transpose()?;
    if query.domains == InDomains::Only(Vec::new()) {
        return Ok(Page::default());
    }
    if query.sort == Sort::Clicks {
        let newest = "SELECT ifnull(max(id), 0) FROM links";
        walk = walk.up_to(connection.prepare_cached(newest)?.query_row([], |row| row.get(0))?);
    }
    let filter = Filter::of(connection, query)?;
    let stretches = if filter.is_few { vec![(Stretch::Whole, last)] } else { stretches(query, last) };
    // One more than requested shows whether there is a next page.
    let mut links = Vec::new();
    for (stretch, mut from) in stretches {
        let order = Order::of(stretch, query);
        loop {
            let most = limit + 1 - links.len();
            let is_sparse = !filter.is_few && (!filter.conditions.is_empty() || order.condition.is_some());
            let rows = Some(walk.rows()).filter(|_| is_sparse);
            let (found, until) = match stretch {
                Stretch::Clicked => {
                    order.clicked(connection, &filter, from.as_deref(), (rows.unwrap_or(most), most))?
                }
                _ => order.next(connection, &filter, from.as_deref(), (rows, most))?,
            };
            links.extend(found);
            match walk.after(stretch, until, &mut links, query) {
                Next::Page(page) => return Ok(page),
                Next::Sorted(behind) => {
                    let (whole, range) = (Order::of(Stretch::Whole, query), (Some(&*behind), None));
                    links.extend(whole.part(connection, &filter, range, limit + 1 - links.len())?);
                    return Ok(page_of(links, limit, query));
                }
                Next::Part(until) => from = Some(until),
                Next::Stretch => break,
            }
        }
    }
    Ok(page_of(links, limit, query))
}

/// The conditions of a list.
struct Filter {
    /// The condition for which an index is used.
    indexed: Option<String>,
    /// The conditions that each link is checked against, with their values.
    conditions: Vec<String>,
    values: Vec<Value>,
    /// Whether an index finds so few links that all are read and sorted.
    is_few: bool,
}

impl Filter {
    fn of(connection: &Connection, query: &ListQuery) -> Result<Self, Error> {
        let mut filter = Self { indexed: None, conditions: Vec::new(), values: Vec::new(), is_few: false };
        if let Some(tag) = &query.tag {
            filter.is_few = is_few(connection, "link_tags WHERE tag = ?1", [tag])?;
            filter.conditions.push(match filter.is_few {
                true => "id IN (SELECT link FROM link_tags WHERE tag = ?)".to_owned(),
                false => "EXISTS (SELECT 1 FROM link_tags WHERE tag = ? AND link = id)".to_owned(),
            });
            filter.values.push(Value::Text(tag.clone()));
        }
        filter.at(connection, query)?;
        if let Some(search) = &query.search {
            check_search(search)?;
            let like = r"(code LIKE ? ESCAPE '\' OR target LIKE ? ESCAPE '\' OR title LIKE ? ESCAPE '\')";
            filter.conditions.push(like.to_owned());
            filter.values.extend(std::iter::repeat_n(Value::Text(pattern(search)), 3));
        }
        if let Some(status) = query.status {
            filter.conditions.push("status = ?".to_owned());
            filter.values.push(Value::Integer(number_of(status)));
        }
        Ok(filter)
    }

    /// Adds the condition on domains.
    fn at(&mut self, connection: &Connection, query: &ListQuery) -> Result<(), Error> {
        let indexed = in_domains::condition(&query.domains);
        let compared = in_domains::compared(&query.domains);
        let one = match &query.domains {
            InDomains::Only(domains) => domains.first().filter(|_| domains.len() == 1 && !self.is_few),
            InDomains::All => None,
        };
        let Some((domain, indexed)) = one.zip(indexed) else {
            self.conditions.extend(compared);
            return Ok(());
        };
        let named = *domain != DomainId::DEFAULT;
        self.is_few = named && is_few(connection, &format!("links WHERE {indexed}"), [])?;
        match query.sort {
            // The index of codes serves this.
            Sort::Code if !self.is_few => self.indexed = Some(format!("domain = {}", domain.0)),
            // The index of domains serves this, by id.
            Sort::Created if named => self.indexed = Some(indexed),
            _ if self.is_few => self.indexed = Some(indexed),
            _ => self.conditions.extend(compared),
        }
        Ok(())
    }
}

/// Whether a query finds few rows. Reads no more rows than it needs to decide.
fn is_few<const N: usize>(connection: &Connection, of: &str, values: [&String; N]) -> Result<bool, Error> {
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {of} LIMIT {})", FEW + 1);
    let found: usize =
        connection.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
    Ok(found <= FEW)
}

/// The source and the order of a stretch of a list.
struct Order {
    /// The condition of the stretch, if it is not the whole list.
    condition: Option<&'static str>,
    columns: &'static [&'static str],
    descending: bool,
}

impl Order {
    fn of(stretch: Stretch, query: &ListQuery) -> Self {
        let whole = |columns| Self { condition: None, columns, descending: query.descending };
        match (stretch, query.sort) {
            (Stretch::Whole, Sort::Created) => whole(&["id"]),
            (Stretch::Whole, Sort::Updated) => whole(&["updated_at", "id"]),
            (Stretch::Whole, Sort::Clicks) => whole(&["clicks", "id"]),
            // As in the index: a code is unique within its domain.
            (Stretch::Whole, Sort::Code) => whole(&["domain", "code", "id"]),
            (Stretch::Unclicked, _) => {
                let none = "NOT EXISTS (SELECT 1 FROM totals AS t WHERE t.link = id AND t.clicks > 0)";
                Self { condition: Some(none), ..whole(&["id"]) }
            }
            (Stretch::Clicked, _) => whole(&["clicks", "link"]),
        }
    }

    /// Reads the next links, at most `most`. With `rows`, reads the next part of that many links, and also returns the
    /// place where it ends.
    fn next(
        &self,
        connection: &Connection,
        filter: &Filter,
        from: Option<&[Place]>,
        (rows, most): (Option<usize>, usize),
    ) -> Result<(Vec<Link>, Option<Vec<Place>>), Error> {
        let until = match rows {
            Some(rows) => self.end_of_part(connection, filter, from, rows)?,
            None => None,
        };
        Ok((self.part(connection, filter, (from, until.as_deref()), most)?, until))
    }

    /// Reads the matching links among the next `rows` links by clicks, at most `most`. Also returns the place where
    /// these rows end, if there are more. There is no index for clicks, which each flush would have to update: reading
    /// the sums of a million links takes some 50 ms.
    fn clicked(
        &self,
        connection: &Connection,
        filter: &Filter,
        from: Option<&[Place]>,
        (rows, most): (usize, usize),
    ) -> Result<(Vec<Link>, Option<Vec<Place>>), Error> {
        let segment = self.between((from, None));
        let sql = format!(
            "SELECT clicks, link FROM totals {} ORDER BY {} LIMIT ?",
            all_of(segment.conditions.iter().map(String::as_str).chain(["clicks > 0"])),
            order(self.columns, self.descending)
        );
        let mut values = segment.values;
        values.push(Value::Integer(rows as i64));
        let mut statement = connection.prepare_cached(&sql)?;
        let sums: Vec<(i64, i64)> = statement
            .query_map(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let end = sums.last().filter(|_| sums.len() == rows);
        let end = end.map(|&(clicks, link)| vec![Place::Number(clicks), Place::Number(link)]);
        let ids: Vec<String> = sums.iter().map(|(_, link)| link.to_string()).collect();
        // Reads the links in the order of the sums.
        let sql = format!(
            "SELECT {COLUMNS} FROM (SELECT key AS place, value AS clicked FROM json_each(?)) AS sums \
             CROSS JOIN links ON id = sums.clicked {} ORDER BY sums.place LIMIT ?",
            all_of(filter.conditions.iter().map(String::as_str))
        );
        let mut values = vec![Value::Text(format!("[{}]", ids.join(",")))];
        values.extend_from_slice(&filter.values);
        values.push(Value::Integer(most as i64));
        let mut statement = connection.prepare_cached(&sql)?;
        let mut links = Vec::new();
        add(&mut links, statement.query_map(params_from_iter(values), link_of)?)?;
        Ok((links, end))
    }

    /// The place of the last of the next `rows` links; `None` if there are fewer.
    fn end_of_part(
        &self,
        connection: &Connection,
        filter: &Filter,
        from: Option<&[Place]>,
        rows: usize,
    ) -> Result<Option<Vec<Place>>, Error> {
        let mut skipped = rows - 1;
        for segment in self.segments((from, None)) {
            let sql = |what: &str, end: &str| {
                let conditions = filter.indexed.iter().chain(&segment.conditions).map(String::as_str);
                format!("SELECT {what} FROM links {} {end}", all_of(conditions))
            };
            let columns = self.columns.join(", ");
            let mut values = segment.values.clone();
            values.push(Value::Integer(skipped as i64));
            let end = format!("ORDER BY {} LIMIT 1 OFFSET ?", order(self.columns, self.descending));
            let mut statement = connection.prepare_cached(&sql(&columns, &end))?;
            let place = statement.query_row(params_from_iter(values), |row| {
                (0..self.columns.len())
                    .map(|column| {
                        Ok(match row.get(column)? {
                            Value::Text(text) => Place::Text(text),
                            Value::Integer(number) => Place::Number(number),
                            _ => Place::Number(0),
                        })
                    })
                    .collect()
            });
            if let Some(place) = place.optional()? {
                return Ok(Some(place));
            }
            let mut statement = connection.prepare_cached(&sql("count(*)", ""))?;
            let there: usize = statement.query_row(params_from_iter(&segment.values), |row| row.get(0))?;
            skipped -= there.min(skipped);
        }
        Ok(None)
    }

    /// Links after the first place, up to the second.
    fn part(
        &self,
        connection: &Connection,
        filter: &Filter,
        range: (Option<&[Place]>, Option<&[Place]>),
        most: usize,
    ) -> Result<Vec<Link>, Error> {
        let mut links = Vec::new();
        for segment in self.segments(range) {
            let conditions = filter.indexed.iter().chain(&segment.conditions).chain(&filter.conditions);
            let sql = format!(
                "SELECT {COLUMNS} FROM links {} ORDER BY {} LIMIT ?",
                all_of(conditions.map(String::as_str).chain(self.condition)),
                order(self.columns, self.descending)
            );
            let mut values = segment.values;
            values.extend_from_slice(&filter.values);
            values.push(Value::Integer((most - links.len()) as i64));
            let mut statement = connection.prepare_cached(&sql)?;
            let is_full = add(&mut links, statement.query_map(params_from_iter(values), link_of)?)?;
            if is_full || links.len() == most {
                break;
            }
        }
        Ok(links)
    }

    /// The condition for the range after the first place, up to the second.
    fn between(&self, (from, until): (Option<&[Place]>, Option<&[Place]>)) -> Segment {
        let (beyond, up_to) = if self.descending { ("<", ">=") } else { (">", "<=") };
        let marks = vec!["?"; self.columns.len()].join(", ");
        let mut segment = Segment::default();
        for (sign, places) in [(beyond, from), (up_to, until)] {
            let Some(places) = places else { continue };
            segment.conditions.push(format!("({}) {sign} ({marks})", self.columns.join(", ")));
            segment.values.extend(self.own(places).iter().map(value));
        }
        segment
    }

    /// Like [`between`](Self::between), in segments that each start and end within the index. In a comparison of two
    /// columns of which the second is the row's id, SQLite uses the index only for the first column, and would read all
    /// links with the same value.
    fn segments(&self, (from, until): (Option<&[Place]>, Option<&[Place]>)) -> Vec<Segment> {
        let (beyond, before, up_to) = if self.descending { ("<", ">", ">=") } else { (">", "<", "<=") };
        let ["updated_at", id] = self.columns[..] else { return vec![self.between((from, until))] };
        let is = |sign: &str| format!("updated_at {sign} ?");
        let alike = |place: &[Place], sign: &str| {
            Segment::default().with(is("="), &place[0]).with(format!("{id} {sign} ?"), &place[1])
        };
        let (from, until) = (from.map(|place| self.own(place)), until.map(|place| self.own(place)));
        if let (Some(from), Some(until)) = (from, until)
            && from[0] == until[0]
        {
            return vec![alike(from, beyond).with(format!("{id} {up_to} ?"), &until[1])];
        }
        let mut middle = Segment::default();
        if let Some(from) = from {
            middle = middle.with(is(beyond), &from[0]);
        }
        if let Some(until) = until {
            middle = middle.with(is(before), &until[0]);
        }
        let (first, last) = (from.map(|from| alike(from, beyond)), until.map(|until| alike(until, up_to)));
        first.into_iter().chain([middle]).chain(last).collect()
    }

    /// The values of a place for these columns. A cursor sorted by creation has its id twice.
    fn own<'p>(&self, place: &'p [Place]) -> &'p [Place] {
        &place[place.len().saturating_sub(self.columns.len())..]
    }
}

/// A segment of an index: its conditions, and their values.
#[derive(Default)]
struct Segment {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Segment {
    fn with(mut self, condition: String, place: &Place) -> Self {
        self.conditions.push(condition);
        self.values.push(value(place));
        self
    }
}

fn all_of<'c>(conditions: impl Iterator<Item = &'c str>) -> String {
    let all: Vec<_> = conditions.collect();
    if all.is_empty() { String::new() } else { format!("WHERE {}", all.join(" AND ")) }
}

fn value(place: &Place) -> Value {
    match place {
        Place::Number(number) => Value::Integer(*number),
        Place::Text(text) => Value::Text(text.clone()),
    }
}
