//! The API's description (OpenAPI 3.1), generated from the handlers, and a page that shows it.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::Bytes;
use service::problem::Problem;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, Response};
use utoipa::{Modify, OpenApi};

use super::api::{batch, bulk, domains, keys, links, qr, stats};
use super::{health, metrics};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "linerate-links",
        description = "Short links. Errors are RFC 9457 problems. Keys are made with `linerate-links key add`, or by one that may write everything, and sent as bearer tokens."
    ),
    paths(
        links::create,
        links::list,
        links::read,
        links::edit,
        links::delete,
        batch::create,
        batch::edit,
        batch::delete,
        bulk::export,
        bulk::import,
        stats::of_link,
        stats::of_all,
        qr::draw,
        domains::list,
        domains::create,
        domains::read,
        domains::edit,
        domains::delete,
        keys::list,
        keys::create,
        keys::read,
        keys::revoke,
        keys::whoami,
        document,
        page,
        health::alive,
        health::ready,
        metrics::show
    ),
    components(schemas(Problem)),
    modifiers(&Bearer, &Problems),
    tags(
        (name = "links", description = "One link, a page of them, or a batch"),
        (name = "bulk", description = "All of them, as a stream"),
        (name = "stats", description = "Clicks"),
        (name = "domains", description = "Further hosts that links can be at"),
        (name = "keys", description = "Who may use this API"),
        (name = "health", description = "For load balancers and monitors"),
        (name = "documentation", description = "This")
    )
)]
struct Api;

/// The security scheme that the operations refer to.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some("`read` tokens read, `write` tokens do everything".to_owned());
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// Adds the errors of every operation that needs a key. Every error is a problem.
struct Problems;

impl Modify for Problems {
    fn modify(&self, document: &mut Document) {
        for item in document.paths.paths.values_mut() {
            let operations = [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete];
            for operation in operations.into_iter().flatten().filter(|operation| operation.security.is_some())
            {
                let responses = &mut operation.responses.responses;
                for (status, description) in [
                    ("401", "No token, or an unknown one"),
                    ("403", "The token may only read, or is for other domains"),
                    ("default", "Any other error"),
                ] {
                    responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(problem(description)));
                }
            }
        }
    }
}

fn problem(description: &str) -> Response {
    let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
    let mut response = Response::new(description);
    response.content.insert(service::problem::CONTENT_TYPE.to_owned(), RefOr::T(Content::new(Some(schema))));
    response
}

/// The description's path.
pub(super) const PATH: &str = "/openapi.json";

/// The whole description.
pub fn describe() -> Document {
    Api::openapi()
}

/// The JSON of the description. It is built once, since it depends only on the program.
static JSON: LazyLock<Bytes> = LazyLock::new(|| describe().to_json().map(Bytes::from).unwrap_or_default());

static PAGE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(service::openapi::page(&describe(), PATH)));

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "documentation", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json")))]
pub(super) fn document() -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/json")).body(JSON.clone())
}

/// This document, as a page
#[utoipa::path(get, path = "/", tag = "documentation", operation_id = "page",
    responses((status = 200, description = "A page without scripts", content_type = "text/html")))]
pub(super) fn page() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"))
        .body(PAGE.clone())
}
