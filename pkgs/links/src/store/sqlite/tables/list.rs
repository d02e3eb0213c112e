//! Lists: filtered, sorted, and paged by key rather than by offset, so that a page costs the same wherever
//! it is and no link is seen twice or missed while others come and go.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::in_domains;
use super::links::{COLUMNS, link_of};
use crate::store::rules::links::number_of;
use crate::store::rules::list::{MAX_LIMIT, MAX_SEARCH, Place, pattern, read_cursor, write_cursor};
use crate::store::{Error, ListQuery, Page, Sort};

pub(in crate::store::sqlite) fn list(connection: &Connection, query: &ListQuery) -> Result<Page, Error> {
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
        values.extend(last.into_iter().map(|place| match place {
            Place::Number(number) => Value::Integer(number),
            Place::Text(text) => Value::Text(text),
        }));
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
