//! For load balancers and service managers.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use service::problem::Problem;

use super::State;
use super::failure::Failure;

/// Whether the process is alive; always so when it answers.
#[utoipa::path(get, path = "/healthz", tag = "health", operation_id = "healthz",
    responses((status = 200, description = "It is alive", content_type = "text/plain")))]
pub(super) async fn alive() -> HttpResponse {
    text("alive\n")
}

/// Whether requests should be sent here.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz",
    responses(
        (status = 200, description = "It can answer", content_type = "text/plain"),
        (status = 503, description = "It cannot now, and why", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn ready(state: web::Data<State>) -> Result<HttpResponse, Failure> {
    if !state.readiness.is_ready() {
        return Err(Problem::unavailable(state.readiness.state().to_string()).into());
    }
    Ok(text("ready\n"))
}

fn text(body: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; charset=utf-8"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(body)
}
