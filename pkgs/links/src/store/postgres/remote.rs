//! The reads that a redirect waits for: the row of a code, and grants of clicks of a limited link.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use postgres::{Kind, Row};

use crate::domains::DomainId;
use crate::link::Status;
use crate::store::rules::links::{redirect_of, status_of};
use crate::store::{Error, LEASED, Lease, Pending, Route};
use crate::when::Timestamp;

use super::values::count;
use super::{Postgres, follow, limits};

/// Reads that wait for the database. All clones share the connections.
#[derive(Clone)]
pub struct Remote(Arc<Postgres>);

/// A link as read, and its click limit. [`Route::max_clicks`] is [`LEASED`] if the link has a limit.
#[derive(Clone, Debug)]
pub struct Found {
    /// The data of the redirect.
    pub route: Route,
    /// The limit.
    pub max_clicks: Option<u64>,
}

/// The columns for [`found`], of links.
macro_rules! columns {
    () => {
        "domain || '/' || code, id, target, status, redirect, forward_query, not_before, expires_at, max_clicks, \
         password_hash"
    };
}

/// The query for one key.
pub const ONE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM links WHERE domain = split_part($1, '/', 1)::int8 AND code = split_part($1, '/', 2)"
);

/// The query for several keys.
pub const SEVERAL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM unnest($1::text[]) AS k (key) JOIN links ON domain = split_part(k.key, '/', 1)::int8 \
     AND code = split_part(k.key, '/', 2)"
);

/// The link in a row of these columns.
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

    /// The data of a redirect, by code.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn route(&self, domain: DomainId, code: &str) -> Result<Option<Found>, Error> {
        let found = self.0.pipelines.get(follow::text_of(domain, code)).await;
        found.map_err(|error| of(&error))
    }

    /// Like [`route`](Self::route), from any server that answers. That server may lack the last writes. `None` if the
    /// URL names no other server.
    ///
    /// # Errors
    /// When none answers.
    pub async fn route_of_any(&self, domain: DomainId, code: &str) -> Option<Result<Option<Found>, Error>> {
        let found = self.0.standbys.as_ref()?.get(follow::text_of(domain, code)).await;
        Some(found.map_err(|error| of(&error)))
    }

    /// Requests clicks of a limited link that this node may answer.
    ///
    /// # Errors
    /// [`Error::Busy`] if too many requests wait, or when the database does not answer.
    pub fn lease(&self, link: i64) -> Pending<Lease> {
        self.0.run_for_visitor(move |pool| async move { limits::lease(&pool, link).await })
    }

    /// Returns unused grants. If this fails before it was `committing`, this node still has them. If it fails then,
    /// nobody knows.
    pub fn give_back(&self, grants: Vec<(i64, u64)>, committing: &Arc<AtomicBool>) -> Pending<()> {
        let committing = Arc::clone(committing);
        self.0.run(move |pool| async move { limits::give_back(&pool, &grants, &committing).await })
    }
}

/// Copies an error, for another waiter of the same answer.
fn of(error: &postgres::Error) -> Error {
    match error.kind() {
        Kind::Busy => Error::Busy,
        Kind::Unreachable => Error::Unreachable(error.to_string()),
        Kind::Full => Error::Full,
        Kind::Failed => Error::Postgres(error.to_string()),
    }
}
