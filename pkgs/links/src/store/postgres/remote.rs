//! What a redirect waits for: the row of a code, and clicks of a limit.

use std::sync::Arc;

use postgres::{Kind, Row};

use crate::domains::DomainId;
use crate::link::Status;
use crate::store::rules::links::{redirect_of, status_of};
use crate::store::{Error, LEASED, Lease, Pending, Route};
use crate::when::Timestamp;

use super::values::count;
use super::{Postgres, follow, limits};

/// Reads that are waited for; clones share them.
#[derive(Clone)]
pub struct Remote(Arc<Postgres>);

/// A link as it was read, and the limit of its clicks: [`Route::max_clicks`] is [`LEASED`] where it has one.
#[derive(Clone, Debug)]
pub struct Found {
    /// What a redirect needs.
    pub route: Route,
    /// The limit itself.
    pub max_clicks: Option<u64>,
}

/// Columns of [`found`], of links.
macro_rules! columns {
    () => {
        "domain || '/' || code, id, target, status, redirect, forward_query, not_before, expires_at, max_clicks, \
         password_hash"
    };
}

/// Of one key.
pub const ONE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM links WHERE domain = split_part($1, '/', 1)::int8 AND code = split_part($1, '/', 2)"
);

/// Of several.
pub const SEVERAL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM unnest($1::text[]) AS k (key) JOIN links ON domain = split_part(k.key, '/', 1)::int8 \
     AND code = split_part(k.key, '/', 2)"
);

/// What a row of these says.
pub fn found(row: &Row) -> Result<(String, Found), tokio_postgres::Error> {
    let max_clicks = row.try_get::<_, Option<i64>>(8)?.map(count);
    let status: Status = status_of(row.try_get::<_, i16>(3)?.into());
    let route = Route {
        id: row.try_get(1)?,
        target: row.try_get(2)?,
        status,
        redirect: redirect_of(row.try_get::<_, i16>(4)?.unsigned_abs()),
        forward_query: row.try_get(5)?,
        not_before: row.try_get::<_, Option<i64>>(6)?.map(Timestamp),
        expires_at: row.try_get::<_, Option<i64>>(7)?.map(Timestamp),
        max_clicks: max_clicks.map(|_| LEASED),
        clicks: LEASED,
        password_hash: row.try_get(9)?,
    };
    Ok((row.try_get(0)?, Found { route, max_clicks }))
}

impl Remote {
    pub(in crate::store) fn of(postgres: Arc<Postgres>) -> Self {
        Self(postgres)
    }

    /// What a redirect needs, by code.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn route(&self, domain: DomainId, code: &str) -> Result<Option<Found>, Error> {
        let found = self.0.pipelines.get(follow::text_of(domain, code)).await;
        found.map_err(|error| of(&error))
    }

    /// The same of any server that answers, which may not have heard of the last writes; none where no other is named.
    ///
    /// # Errors
    /// When none answers.
    pub async fn route_of_any(&self, domain: DomainId, code: &str) -> Option<Result<Option<Found>, Error>> {
        let found = self.0.standbys.as_ref()?.get(follow::text_of(domain, code)).await;
        Some(found.map_err(|error| of(&error)))
    }

    /// Clicks that this node may answer of a link whose clicks are limited.
    pub fn lease(&self, link: i64) -> Pending<Lease> {
        self.0.run(move |pool| async move { limits::lease(&pool, link).await })
    }

    /// Gives back what was granted and not needed. Where this fails, nobody answers those.
    pub fn give_back(&self, grants: Vec<(i64, u64)>) -> Pending<()> {
        self.0.run(move |pool| async move { limits::give_back(&pool, &grants).await })
    }
}

/// The same for another who waits for the same answer.
fn of(error: &postgres::Error) -> Error {
    match error.kind() {
        Kind::Busy => Error::Busy,
        Kind::Unreachable => Error::Unreachable(error.to_string()),
        Kind::Failed => Error::Postgres(error.to_string()),
    }
}
