//! Lists, by the same cursors as those of a file.

use postgres::types::{ToSql, Type};
use postgres::{Parameter, Pool};

use crate::domains::InDomains;
use crate::store::rules::links::number_of;
use crate::store::rules::list::{MAX_LIMIT, MAX_SEARCH, Place, pattern, read_cursor, write_cursor};
use crate::store::{Error, ListQuery, Page, Sort};

use super::links::{SELECT, link_of};

/// Conditions and their values.
#[derive(Default)]
struct Filter {
    conditions: Vec<String>,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Filter {
    /// Keeps a value, and answers what stands for it.
    fn value(&mut self, value: impl ToSql + Sync + Send + 'static, of: Type) -> String {
        self.values.push((Box::new(value), of));
        format!("${}", self.values.len())
    }
}

/// The ids of a choice of domains; none where any is right.
pub fn ids(domains: &InDomains) -> Option<Vec<i64>> {
    match domains {
        InDomains::All => None,
        InDomains::Only(domains) => Some(domains.iter().map(|domain| domain.0).collect()),
    }
}

pub async fn list(pool: &Pool, query: &ListQuery) -> Result<Page, Error> {
    let limit = query.limit.clamp(1, MAX_LIMIT);
    let columns = match query.sort {
        Sort::Created => vec!["l.id"],
        Sort::Updated => vec!["l.updated_at", "l.id"],
        Sort::Clicks => vec!["coalesce(t.clicks, 0)", "l.id"],
        Sort::Code => vec!["l.domain", "l.code", "l.id"],
    };
    let (order, beyond) = if query.descending { ("DESC", "<") } else { ("ASC", ">") };
    let mut filter = Filter::default();
    if let Some(ids) = ids(&query.domains) {
        let ids = filter.value(ids, Type::INT8_ARRAY);
        filter.conditions.push(format!("l.domain = ANY({ids})"));
    }
    if let Some(cursor) = &query.cursor {
        let mut marks = Vec::new();
        for last in read_cursor(cursor, query)? {
            marks.push(match last {
                Place::Number(number) => filter.value(number, Type::INT8),
                Place::Text(text) if !text.contains('\0') => filter.value(text, Type::TEXT),
                _ => return Err(Error::field("cursor", "not a cursor of this list")),
            });
        }
        // One by its age says it twice.
        let marks = &marks[marks.len() - columns.len()..];
        filter.conditions.push(format!("({}) {beyond} ({})", columns.join(", "), marks.join(", ")));
    }
    if let Some(search) = &query.search {
        if search.len() > MAX_SEARCH {
            return Err(Error::field("search", format!("at most {MAX_SEARCH} bytes")));
        }
        if search.contains('\0') {
            // PostgreSQL has no text with it.
            return Ok(Page { links: Vec::new(), next: None });
        }
        let text = filter.value(pattern(search), Type::TEXT);
        filter
            .conditions
            .push(format!("(l.code ILIKE {text} OR l.target ILIKE {text} OR l.title ILIKE {text})"));
    }
    if let Some(tag) = &query.tag {
        if tag.contains('\0') {
            return Ok(Page { links: Vec::new(), next: None });
        }
        let tag = filter.value(tag.clone(), Type::TEXT);
        filter.conditions.push(format!("l.tags @> ARRAY[{tag}]"));
    }
    if let Some(status) = query.status {
        let status = filter.value(number_of(status), Type::INT8);
        filter.conditions.push(format!("l.status = {status}"));
    }
    // One more than asked for tells whether there is a next page.
    let most = filter.value(i64::try_from(limit).unwrap_or(i64::MAX) + 1, Type::INT8);
    let conditions = match filter.conditions.is_empty() {
        true => String::new(),
        false => format!("WHERE {}", filter.conditions.join(" AND ")),
    };
    let ordered: Vec<_> = columns.iter().map(|column| format!("{column} {order}")).collect();
    let sql = format!("{SELECT} {conditions} ORDER BY {} LIMIT {most}", ordered.join(", "));
    let values: Vec<Parameter<'_>> =
        filter.values.iter().map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone())).collect();
    let rows = pool.get().await?.query(&sql, &values).await?;
    let mut links = rows.iter().map(link_of).collect::<Result<Vec<_>, _>>()?;
    let more = links.len() > limit;
    links.truncate(limit);
    let next = links.last().filter(|_| more).map(|last| write_cursor(last, query));
    Ok(Page { links, next })
}
