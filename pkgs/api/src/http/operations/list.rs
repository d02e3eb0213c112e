//! Lists: filters, orders and pages.

use std::sync::LazyLock;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::http::Api;
use crate::http::document::unwritable;
use crate::http::failure::Failure;
use crate::http::openapi::{Count, Page};
use crate::http::request::cursor;
use crate::http::request::fields::Selection;
use crate::http::request::query::{known_only, names, query, wrong};
use crate::http::response::respond::{json, users};
use crate::json::object::Unknown;
use crate::store::{Filter, Query, Sort, SortBy};
use crate::user::Status;

/// Users per page by default.
const PAGE: u32 = 50;
const PAGE_MOST: u32 = 200;

/// Filters
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ListFilter {
    /// Words: each has to be the start of a word of name, email, tags or bio, ignoring case
    #[param(min_length = 1, max_length = 200, pattern = r"^[^\x00]+$")]
    q: Option<String>,
    /// With this status
    #[param(inline)]
    status: Option<Status>,
    /// With this tag
    #[param(min_length = 1, max_length = 32, pattern = "^[a-z0-9][a-z0-9_-]{0,31}$")]
    tag: Option<String>,
    /// With this email, ignoring case
    #[param(min_length = 1, max_length = 254, pattern = r"^[^\x00]+$")]
    email: Option<String>,
    /// Created at this time or later (RFC 3339)
    #[serde(default, deserialize_with = "instant")]
    #[param(value_type = Option<String>, format = DateTime)]
    created_after: Option<Timestamp>,
    /// Created before this time (RFC 3339)
    #[serde(default, deserialize_with = "instant")]
    #[param(value_type = Option<String>, format = DateTime)]
    created_before: Option<Timestamp>,
}

/// Order, page and members
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ListOptions {
    /// The order: a member, with a leading `-` for descending; by default `created_at`
    #[param(inline)]
    sort: Option<Order>,
    /// Users per page; by default 50. A page of very large users has fewer
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// Where the page starts: `next` of the previous page, with the same filter and order
    #[param(min_length = 1, max_length = 2304, pattern = "^[A-Za-z0-9_-]+$")]
    cursor: Option<String>,
    /// The wanted members, separated by commas; by default all
    #[param(
        pattern = "^(id|version|created_at|updated_at|email|name|status|profile|addresses|tags|preferences)(,(id|version|created_at|updated_at|email|name|status|profile|addresses|tags|preferences)){0,31}$"
    )]
    fields: Option<String>,
}

/// An order
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
enum Order {
    #[serde(rename = "created_at")]
    Created,
    #[serde(rename = "-created_at")]
    CreatedDescending,
    #[serde(rename = "updated_at")]
    Updated,
    #[serde(rename = "-updated_at")]
    UpdatedDescending,
    #[serde(rename = "name")]
    Name,
    #[serde(rename = "-name")]
    NameDescending,
    #[serde(rename = "email")]
    Email,
    #[serde(rename = "-email")]
    EmailDescending,
}

impl From<Order> for Sort {
    fn from(order: Order) -> Self {
        let (by, descending) = match order {
            Order::Created => (SortBy::CreatedAt, false),
            Order::CreatedDescending => (SortBy::CreatedAt, true),
            Order::Updated => (SortBy::UpdatedAt, false),
            Order::UpdatedDescending => (SortBy::UpdatedAt, true),
            Order::Name => (SortBy::Name, false),
            Order::NameDescending => (SortBy::Name, true),
            Order::Email => (SortBy::Email, false),
            Order::EmailDescending => (SortBy::Email, true),
        };
        Self { by, descending }
    }
}

/// List and search users
#[utoipa::path(get, path = "/v1/users", tag = "users", operation_id = "listUsers",
    params(ListFilter, ListOptions),
    responses((status = 200, description = "A page", body = Page,
               headers(("Link" = Option<String>, description = "The next page (RFC 8288)")))))]
pub(in crate::http) async fn list(
    State(api): State<Api>,
    RawQuery(text): RawQuery,
) -> Result<Response, Failure> {
    let (asked, selection) = asked(text.as_deref().unwrap_or_default(), api.settings().limits.unknown)?;
    let page = api.users().list(&asked).await?;
    let bodies: Vec<Bytes> = page.records.iter().map(|record| selection.of(&record.body)).collect();
    let next = page.next.map(|position| cursor::encode(&position, &asked.filter, asked.sort));
    let end = match &next {
        Some(next) => format!(",\"next\":\"{next}\"}}"),
        None => ",\"next\":null}".to_owned(),
    };
    let mut response = json(StatusCode::OK, users(bodies.iter(), &end));
    if let Some(next) = next {
        let link =
            format!("</v1/users?{}>; rel=\"next\"", following(text.as_deref().unwrap_or_default(), &next));
        if let Ok(link) = HeaderValue::from_str(&link) {
            response.headers_mut().insert(header::LINK, link);
        }
    }
    Ok(response)
}

/// The query of a list, and its wanted members.
///
/// # Errors
/// 400; it says which parameter is wrong.
pub fn asked(text: &str, unknown: Unknown) -> Result<(Query, Selection), Failure> {
    let (which, how) = split(text);
    known_only(&how, &[names::<ListFilter>(), names::<ListOptions>()].concat())?;
    let ListOptions { sort, limit, cursor, fields } = query(Some(&how))?;
    let filter = filter(query(Some(&which))?)?;
    let selection = Selection::parse(fields.as_deref(), unknown)?;
    let sort = sort.map(Sort::from).unwrap_or_default();
    let limit = limit.unwrap_or(PAGE);
    if !(1..=PAGE_MOST).contains(&limit) {
        return Err(wrong("limit", format_args!("must be 1 to {PAGE_MOST}")));
    }
    let after = cursor.map(|text| cursor::decode(&text, &filter, sort)).transpose();
    let after = after.map_err(|error| wrong("cursor", error))?;
    Ok((Query { filter, sort, after, limit }, selection))
}

/// Count users
#[utoipa::path(get, path = "/v1/users:count", tag = "users", operation_id = "countUsers",
    params(ListFilter),
    responses((status = 200, description = "How many there are", body = Count)))]
pub(in crate::http) async fn count(
    State(api): State<Api>,
    RawQuery(text): RawQuery,
) -> Result<Response, Failure> {
    let count = api.users().count(&filter(query(text.as_deref())?)?).await?;
    Ok(json(StatusCode::OK, sonic_rs::to_vec(&Count { count }).map_err(unwritable)?))
}

/// Separates the filter's parameters from the others. Serde can read both at once, but then does not refuse unknown
/// ones.
fn split(query: &str) -> (String, String) {
    static WHICH: LazyLock<Vec<String>> = LazyLock::new(names::<ListFilter>);
    let is_which = |pair: &&str| {
        let name = url::form_urlencoded::parse(pair.as_bytes()).next();
        name.is_some_and(|(name, _)| WHICH.iter().any(|known| *known == name))
    };
    let (which, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_which);
    (which.join("&"), others.join("&"))
}

fn filter(which: ListFilter) -> Result<Filter, Failure> {
    let ListFilter { q, status, tag, email, created_after, created_before } = which;
    let texts = [("q", &q, 200), ("tag", &tag, 32), ("email", &email, 254)];
    for (name, text, most) in texts {
        let Some(text) = text else { continue };
        if text.is_empty() || text.chars().count() > most || text.contains('\0') {
            return Err(wrong(name, format_args!("must be 1 to {most} characters, none of them U+0000")));
        }
    }
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_tag = |tag: &String| {
        lower(tag.as_bytes()[0]) && tag.bytes().all(|byte| lower(byte) || b"_-".contains(&byte))
    };
    if !tag.as_ref().is_none_or(is_tag) {
        return Err(wrong("tag", "no tag is like this"));
    }
    let words = q.iter().flat_map(|text| text.split_whitespace()).take(Filter::WORDS);
    let words = words.map(str::to_owned).collect();
    Ok(Filter { status, tag, email, created_after, created_before, words })
}

/// The query string of the next page.
fn following(query: &str, cursor: &str) -> String {
    let rest = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="));
    rest.chain([format!("cursor={cursor}").as_str()]).collect::<Vec<_>>().join("&")
}

/// A time in RFC 3339; the parser accepts more.
fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let form = |(index, byte): (usize, u8)| match index {
        4 | 7 => byte == b'-',
        10 => matches!(byte, b'T' | b't'),
        13 | 16 => byte == b':',
        ..19 => byte.is_ascii_digit(),
        _ => matches!(byte, b'.' | b'0'..=b'9' | b'Z' | b'z' | b'+' | b'-' | b':'),
    };
    let offset = |text: &str| {
        text.ends_with(['Z', 'z']) || text.len() > 6 && matches!(text.as_bytes()[text.len() - 6], b'+' | b'-')
    };
    let valid = text.len() >= 20 && text.bytes().enumerate().all(form) && offset(&text);
    let instant = text.parse().ok().filter(|_| valid);
    instant
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom("must be an instant such as 2030-01-31T12:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(ListFilter, ListOptions), Failure> {
        let (which, how) = split(text);
        known_only(&how, &[names::<ListFilter>(), names::<ListOptions>()].concat())?;
        Ok((query(Some(&which))?, query(Some(&how))?))
    }

    #[test]
    fn parameters_are_read() {
        let (which, how) =
            read("q=a%20b+c&status=active&sort=-name&limit=7&created%5fafter=2030-01-31T12:00:00%2B01:00")
                .expect("they are well");
        assert_eq!(which.q.as_deref(), Some("a b c"));
        assert_eq!(how.sort.map(Sort::from), Some(Sort { by: SortBy::Name, descending: true }));
        assert_eq!(which.created_after, "2030-01-31T11:00:00Z".parse().ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, name) in [
            ("limit=x", "limit"),
            ("limit=-1", "limit"),
            ("status=gone", "status"),
            ("sort=id", "sort"),
            ("created_after=2030-01-31", "created_after"),
            ("created_before=20300131T120000Z", "created_before"),
            ("colour=red", "colour"),
            ("limit=1&limit=2", "limit"),
            ("tag=a&sort=name&tag=b", "tag"),
            ("q=%ff", "UTF-8"),
            ("q=%f", "percent-encoded"),
        ] {
            let detail = read(text).expect_err("it is refused").problem().detail.clone();
            assert!(detail.contains(name), "{text}: {detail}");
        }
        let all = "colour: there is no such parameter; there are q, status, tag, email, created_after, created_before, \
                   sort, limit, cursor, fields";
        let refused = read("q=a&limit=1&colour=red").expect_err("it is refused");
        assert!(refused.problem().detail.ends_with(all), "{}", refused.problem().detail);
        let refused = query::<ListFilter>(Some("sort=name")).expect_err("to count takes no order");
        assert!(refused.problem().detail.contains("sort"));
    }

    #[test]
    fn the_next_page_is_asked_for_as_this_one_was() {
        for (query, next) in [("", "cursor=c"), ("q=a%20b&cursor=old&limit=2", "q=a%20b&limit=2&cursor=c")] {
            assert_eq!(following(query, "c"), next);
        }
    }
}
