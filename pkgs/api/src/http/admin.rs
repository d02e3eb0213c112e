//! The admin listener: health and metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{self, HeaderName};
use service::metrics::{CONTENT_TYPE, Registry, encode};
use service::problem::Problem;
use service::ready::Readiness;

use super::failure::Failure;
use crate::users::Users;

#[derive(Clone)]
struct Shared {
    users: Users,
    readiness: Readiness,
    registry: Arc<Registry>,
}

const UNCACHED: (HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

/// `/healthz`: the process runs; `/readyz`: it serves and its database answers; `/metrics`: what it has counted.
pub fn router(users: Users, readiness: Readiness, registry: Registry) -> Router {
    Router::new()
        .route("/healthz", get(async || ([UNCACHED], "ok\n")))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Shared { users, readiness, registry: Arc::new(registry) })
}

async fn ready(State(shared): State<Shared>) -> Result<Response, Failure> {
    let state = shared.readiness.state();
    if !shared.readiness.is_ready() {
        return Err(Problem::unavailable(state.to_string()).into());
    }
    shared.users.ping().await?;
    Ok(([UNCACHED], format!("{state}\n")).into_response())
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], encode(&shared.registry))
}
