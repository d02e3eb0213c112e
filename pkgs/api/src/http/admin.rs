//! The admin listener: health and metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use service::allowed_hosts::AllowedHosts;
use service::health::{self, Answer};
use service::metrics::{CONTENT_TYPE, Registry, encode};
use service::problem::Problem;
use service::ready::Readiness;

use super::failure::Failure;
use super::hosts;
use crate::users::Users;

#[derive(Clone)]
struct Shared {
    users: Users,
    readiness: Readiness,
    registry: Arc<Registry>,
}

/// `/healthz`: the process runs; `/readyz`: it serves and its database answers; `/metrics`: what it has counted.
pub fn router(users: Users, readiness: Readiness, registry: Registry) -> Router {
    Router::new()
        .route(health::ALIVE_PATH, get(async || told(health::alive())))
        .route(health::READY_PATH, get(ready))
        .route("/metrics", get(metrics))
        .with_state(Shared { users, readiness, registry: Arc::new(registry) })
}

/// The same by these names only: for a listener on loopback, where web pages are kept out by nothing else (DNS rebinding).
pub fn only_for(router: Router, hosts: AllowedHosts) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::new(hosts), named))
}

async fn named(State(hosts): State<Arc<AllowedHosts>>, request: Request, next: Next) -> Response {
    match hosts::check(&hosts, &request, request.headers().get(header::ORIGIN)) {
        Ok(()) => next.run(request).await,
        Err(refused) => Failure::from(Problem::from(refused)).into_response(),
    }
}

fn told(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, answer.headers(), answer.body).into_response()
}

async fn ready(State(shared): State<Shared>) -> Response {
    if !shared.readiness.is_ready() {
        return told(health::ready(&shared.readiness));
    }
    told(match shared.users.ping().await {
        Ok(()) => health::ready(&shared.readiness),
        Err(error) => {
            tracing::debug!(error = service::exit::chain(&error), "the database did not answer");
            health::not_ready(error.to_string())
        }
    })
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], encode(&shared.registry))
}
