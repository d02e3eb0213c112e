//! Lists: limits of their length and search text, and their cursors.

use crate::domains::DomainId;
use crate::link::Link;
use crate::store::{Error, ListQuery, Sort};

/// The most links of a page.
pub const MAX_LIMIT: usize = 1_000;

/// The longest search, in bytes: SQLite refuses patterns beyond 50,000 (sqlite.org/limits.html).
pub const MAX_SEARCH: usize = 8_000;

/// Refuses a search that is too long.
pub fn check_search(search: &str) -> Result<(), Error> {
    if search.len() > MAX_SEARCH {
        return Err(Error::field("search", format!("at most {MAX_SEARCH} bytes")));
    }
    Ok(())
}

/// The ORDER BY of these columns, for both databases.
pub fn order(columns: &[&str], descending: bool) -> String {
    let order = if descending { "DESC" } else { "ASC" };
    columns.iter().map(|column| format!("{column} {order}")).collect::<Vec<_>>().join(", ")
}

/// The LIKE pattern that finds a text anywhere, with special characters escaped.
pub fn pattern(search: &str) -> String {
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

/// The value of a column at the end of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An integer.
    Number(i64),
    /// A text.
    Text(String),
}

/// Writes a cursor. It names the order, and the end of the page in that order: `ca~1700000000~42`, `ka~abc~42`,
/// `ka~7/abc~42`.
pub fn write_cursor(last: &Link, query: &ListQuery) -> String {
    let value = match query.sort {
        Sort::Created => last.id.to_string(),
        Sort::Updated => last.updated_at.0.to_string(),
        Sort::Clicks => last.clicks.to_string(),
        Sort::Code if last.domain_id == DomainId::DEFAULT => last.code.clone(),
        Sort::Code => format!("{}/{}", last.domain_id.0, last.code),
    };
    format!("{}~{value}~{}", order_of(query), last.id)
}

/// Like [`write_cursor`], for the place up to which links were examined. No link on the page may be at this place.
pub fn write_cursor_at(places: &[Place], query: &ListQuery) -> Option<String> {
    let value = match (query.sort, places) {
        (Sort::Code, [Place::Number(0), Place::Text(code), _]) => code.clone(),
        (Sort::Code, [Place::Number(domain), Place::Text(code), _]) => format!("{domain}/{code}"),
        // Links without clicks are ordered by id alone.
        (Sort::Clicks, [Place::Number(_)]) => "0".to_owned(),
        (Sort::Created | Sort::Updated | Sort::Clicks, [Place::Number(value), ..]) => value.to_string(),
        _ => return None,
    };
    let Some(Place::Number(id)) = places.last() else { return None };
    Some(format!("{}~{value}~{id}", order_of(query)))
}

/// The values of the sorted columns at the end of the previous page.
pub fn read_cursor(cursor: &str, query: &ListQuery) -> Result<Vec<Place>, Error> {
    let parse = || {
        let (value, id) = cursor.strip_prefix(order_of(query))?.strip_prefix('~')?.rsplit_once('~')?;
        let mut values = match (query.sort, value.split_once('/')) {
            (Sort::Code, None) => vec![Place::Number(0), Place::Text(value.to_owned())],
            (Sort::Code, Some((domain, code))) => {
                vec![Place::Number(domain.parse().ok()?), Place::Text(code.to_owned())]
            }
            (Sort::Created | Sort::Updated | Sort::Clicks, _) => vec![Place::Number(value.parse().ok()?)],
        };
        values.push(Place::Number(id.parse().ok()?));
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
