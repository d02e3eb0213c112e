//! The admin listener: health and metrics, as an axum router.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use service::health;
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
        .route(health::ALIVE_PATH, get(async || answer(health::alive())))
        .route(health::READY_PATH, get(ready))
        .route("/metrics", get(metrics))
        .with_state(Shared { readiness, registry: Arc::new(registry) })
}

async fn ready(State(shared): State<Shared>) -> Response {
    answer(health::ready(&shared.readiness))
}

fn answer(answer: health::Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    (status, answer.headers(), answer.body).into_response()
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], encode(&shared.registry))
}
