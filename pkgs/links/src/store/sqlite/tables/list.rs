//! Lists: filtered, sorted, and paged by key rather than by offset, so that a page costs the same wherever
//! it is and no link is seen twice or missed while others come and go.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::domains::DomainId;
use crate::link::Link;

use super::in_domains;
use super::links::{COLUMNS, link_of, number_of};
use crate::store::{Error, ListQuery, Page, Sort};

/// The most links of a page.
pub(in crate::store) const MAX_LIMIT: usize = 1_000;

/// The longest search, in bytes: SQLite refuses patterns beyond 50,000 (sqlite.org/limits.html).
pub(in crate::store) const MAX_SEARCH: usize = 8_000;

pub(in crate::store) fn list(connection: &Connection, query: &ListQuery) -> Result<Page, Error> {
    let limit = query.limit.clamp(1, MAX_LIMIT);
    let column = match query.sort {
        Sort::Created => "id",
        Sort::Updated => "updated_at",
        Sort::Clicks => "clicks",
        Sort::Code => "code",
    };
    let (order, beyond) = if query.descending { ("DESC", "<") } else { ("ASC", ">") };
    let columns = match query.sort {
        // As the index has them: a code is unique within its domain.
        Sort::Code => vec!["domain", "code", "id"],
        _ => vec![column, "id"],
    };
    let mut conditions = Vec::from_iter(in_domains::condition(&query.domains));
    let mut values: Vec<Value> = Vec::new();
    if let Some(cursor) = &query.cursor {
        let last = read_cursor(cursor, query)?;
        let marks = vec!["?"; columns.len()];
        conditions.push(format!("({}) {beyond} ({})", columns.join(", "), marks.join(", ")));
        values.extend(last);
    }
    if let Some(search) = &query.search {
        if search.len() > MAX_SEARCH {
            return Err(Error::field("search", format!("at most {MAX_SEARCH} bytes")));
        }
        conditions
            .push(r"(code LIKE ? ESCAPE '\' OR target LIKE ? ESCAPE '\' OR title LIKE ? ESCAPE '\')".into());
        values.extend(std::iter::repeat_n(Value::Text(pattern(search)), 3));
    }
    if let Some(tag) = &query.tag {
        conditions.push("id IN (SELECT link FROM link_tags WHERE tag = ?)".into());
        values.push(Value::Text(tag.clone()));
    }
    if let Some(status) = query.status {
        conditions.push("status = ?".into());
        values.push(Value::Integer(number_of(status)));
    }
    let filter =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    let ordered: Vec<_> = columns.iter().map(|column| format!("{column} {order}")).collect();
    let sql = format!("SELECT {COLUMNS} FROM links {filter} ORDER BY {} LIMIT ?", ordered.join(", "));
    // One more than asked for tells whether there is a next page.
    values.push(Value::Integer(limit as i64 + 1));
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), link_of)?;
    let mut links = rows.collect::<Result<Vec<_>, _>>()?;
    let more = links.len() > limit;
    links.truncate(limit);
    let next = links.last().filter(|_| more).map(|last| write_cursor(last, query));
    Ok(Page { links, next })
}

/// The pattern that finds a text anywhere, with LIKE's own characters taken literally.
pub(in crate::store) fn pattern(search: &str) -> String {
    let mut pattern = String::with_capacity(search.len() + 2);
    pattern.push('%');
    for c in search.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// A cursor names its order, and where in it the page ended: `ca~1700000000~42`, `ka~abc~42`, `ka~7/abc~42`.
pub(in crate::store) fn write_cursor(last: &Link, query: &ListQuery) -> String {
    let value = match query.sort {
        Sort::Created => last.id.to_string(),
        Sort::Updated => last.updated_at.0.to_string(),
        Sort::Clicks => last.clicks.to_string(),
        Sort::Code if last.domain_id == DomainId::DEFAULT => last.code.clone(),
        Sort::Code => format!("{}/{}", last.domain_id.0, last.code),
    };
    format!("{}~{value}~{}", order_of(query), last.id)
}

/// The values of the columns that a list is sorted by, where the page before it ended.
pub(in crate::store) fn read_cursor(cursor: &str, query: &ListQuery) -> Result<Vec<Value>, Error> {
    let parse = || {
        let (value, id) = cursor.strip_prefix(order_of(query))?.strip_prefix('~')?.rsplit_once('~')?;
        let mut values = match (query.sort, value.split_once('/')) {
            (Sort::Code, None) => vec![Value::Integer(0), Value::Text(value.to_owned())],
            (Sort::Code, Some((domain, code))) => {
                vec![Value::Integer(domain.parse().ok()?), Value::Text(code.to_owned())]
            }
            (Sort::Created | Sort::Updated | Sort::Clicks, _) => vec![Value::Integer(value.parse().ok()?)],
        };
        values.push(Value::Integer(id.parse().ok()?));
        Some(values)
    };
    parse().ok_or_else(|| Error::field("cursor", "not a cursor of this list"))
}

fn order_of(query: &ListQuery) -> &'static str {
    match (query.sort, query.descending) {
        (Sort::Created, false) => "ca",
        (Sort::Created, true) => "cd",
        (Sort::Updated, false) => "ua",
        (Sort::Updated, true) => "ud",
        (Sort::Clicks, false) => "na",
        (Sort::Clicks, true) => "nd",
        (Sort::Code, false) => "ka",
        (Sort::Code, true) => "kd",
    }
}
