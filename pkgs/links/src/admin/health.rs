//! Health checks for load balancers and service managers, with the same answers as in every service.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use service::health::{self, Answer, Health};
use service::problem::Problem;

use super::State;

/// Whether the process is alive. It is, if it answers.
#[utoipa::path(get, path = "/healthz", tag = "health", operation_id = "healthz",
    responses((status = 200, description = "It is alive", body = Health)))]
pub(super) fn alive() -> HttpResponse {
    respond(health::alive())
}

/// Whether requests should be sent here.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz",
    responses(
        (status = 200, description = "It can answer", body = Health),
        (status = 503, description = "It cannot now, and why", body = Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) fn ready(state: &State) -> HttpResponse {
    respond(health::ready(&state.readiness))
}

fn respond(answer: Answer) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    for header in answer.headers() {
        response.insert_header(header);
    }
    let mut response = response.body(answer.body);
    if let Some(problem) = answer.problem {
        // The listener adds the request's id to it.
        response.extensions_mut().insert(problem);
    }
    response
}
