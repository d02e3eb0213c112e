//! The admin listener: health and metrics, as an axum router.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use service::metrics::{CONTENT_TYPE, Registry, encode};
use service::ready::Readiness;

#[derive(Clone)]
struct Shared {
    readiness: Readiness,
    registry: Arc<Registry>,
}

/// `/healthz`: the process runs; `/readyz`: it serves; `/metrics`: what it has counted.
pub fn router(readiness: Readiness, registry: Registry) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Shared { readiness, registry: Arc::new(registry) })
}

async fn ready(State(shared): State<Shared>) -> impl IntoResponse {
    let state = shared.readiness.state();
    let status = if shared.readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{state}\n"))
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], encode(&shared.registry))
}
