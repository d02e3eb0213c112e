//! The table of what is served, and its description, which is made from it.

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Router};
use bytes::Bytes;
use http::{StatusCode, header};
use service::problem::Problem;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::failure::Failure;
use super::openapi::{Base, complete};
use super::users::json;
use super::{Api, batch, list, users};
use crate::json::object::Unknown;

/// The description, as it is sent.
#[derive(Clone)]
struct Described {
    json: Bytes,
    page: Bytes,
}

/// Where the description is.
const DESCRIPTION: &str = "/openapi.json";

fn table() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Base::openapi())
        .routes(routes!(users::create, list::list))
        .routes(routes!(users::get, users::replace, users::patch, users::delete))
        .routes(routes!(users::validate))
        .routes(routes!(list::count))
        .routes(routes!(batch::create))
        .routes(routes!(batch::get))
        .routes(routes!(batch::delete))
        .routes(routes!(document))
        .routes(routes!(page))
}

/// Everything that is not answered before.
pub fn router(api: Api) -> Router {
    let description = describe(api.settings().limits.unknown);
    let described = Described {
        json: description.to_json().unwrap_or_default().into(),
        page: service::openapi::page(&description, DESCRIPTION).into(),
    };
    let (router, _) = table().split_for_parts();
    router.fallback(unknown).method_not_allowed_fallback(method).layer(Extension(described)).with_state(api)
}

/// The description of what the router serves.
pub fn describe(unknown: Unknown) -> Description {
    let mut description = table().into_openapi();
    complete(&mut description, unknown);
    description
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "documentation", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json")))]
async fn document(State(_): State<Api>, Extension(described): Extension<Described>) -> Response {
    json(StatusCode::OK, described.json)
}

/// This document, for people
#[utoipa::path(get, path = "/", tag = "documentation", operation_id = "page",
    responses((status = 200, description = "A page without scripts", content_type = "text/html")))]
async fn page(State(_): State<Api>, Extension(described): Extension<Described>) -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(described.page))
}

async fn unknown() -> Failure {
    Problem::not_found("nothing is here; /openapi.json tells what is where").into()
}

async fn method() -> Failure {
    Problem::new(405, "there is no such method here; Allow has those that there are").into()
}
