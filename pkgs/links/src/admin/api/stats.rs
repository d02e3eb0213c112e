//! Clicks of one link and of all.

use actix_web::{HttpRequest, HttpResponse, web};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::Deserialize;

use super::domains;
use crate::admin::State;
use crate::admin::protocol::failure::Failure;
use crate::admin::protocol::query;
use crate::admin::protocol::respond::uncached;
use crate::store::{Stats, StatsScope};

/// The days to sum up, in UTC.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Days {
    /// The first day, such as `2030-01-31`. Default: 29 days before the last.
    #[param(value_type = Option<String>, format = Date)]
    from: Option<Date>,
    /// The last day. Default: today.
    #[param(value_type = Option<String>, format = Date)]
    to: Option<Date>,
    /// The domain; `default` is the one without a name. For one link, its domain, by default the default one. Otherwise
    /// the domain whose current links are summed.
    domain: Option<String>,
    /// Whether to also sum up hours, as far as these days still have them.
    #[serde(default)]
    hours: bool,
}

/// A link's clicks
#[utoipa::path(get, path = "/api/v1/links/{code}/stats", tag = "stats", operation_id = "linkStats",
    params(("code" = String, Path), Days), security(("bearer" = ["read"])),
    responses((status = 200, description = "Its clicks", body = Stats)))]
pub(in crate::admin) async fn of_link(
    request: HttpRequest,
    code: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    answer(&request, &state, Some(code.into_inner())).await
}

/// All clicks
#[utoipa::path(get, path = "/api/v1/stats", tag = "stats", operation_id = "stats",
    params(Days), security(("bearer" = ["read"])),
    responses((status = 200, description = "The clicks of all links, or of those at some domains", body = Stats)))]
pub(in crate::admin) async fn of_all(
    request: HttpRequest,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    answer(&request, &state, None).await
}

async fn answer(request: &HttpRequest, state: &State, code: Option<String>) -> Result<HttpResponse, Failure> {
    let asked: Days = query::parse(request)?;
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let to = asked.to.unwrap_or(today);
    let from = asked.from.unwrap_or_else(|| to.saturating_sub(29.days()));
    if from > to {
        return Err(query::refuse("from", "is later than to"));
    }
    let days = day(from)..=day(to);
    let domain = asked.domain.as_deref();
    let counted: StatsScope = match code {
        Some(code) => StatsScope::Link(domains::key_at(request, state, domain, code)?),
        None => domains::several(request, state, domain)?.into(),
    };
    let summed = state.readers.with(move |reader| match asked.hours {
        true => reader.stats_by_hour(counted, days),
        false => reader.stats(counted, days),
    });
    let stats = summed.await?;
    Ok(uncached(HttpResponse::Ok()).json(stats))
}

/// Days since the Unix epoch. Every possible date fits.
fn day(date: Date) -> i32 {
    date.duration_since(Date::constant(1970, 1, 1)).as_hours().div_euclid(24) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_count_from_the_epoch() {
        for (date, count) in [
            (Date::constant(1970, 1, 1), 0),
            (Date::constant(1969, 12, 31), -1),
            (Date::constant(2000, 3, 1), 11_017),
            (Date::MAX, 2_932_896),
            (Date::MIN, -4_371_587),
        ] {
            assert_eq!(day(date), count, "{date}");
        }
    }
}
