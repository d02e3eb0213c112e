//! The table of routes. Both the router, whose matches return routes, and the API's description are made from it.

use std::pin::Pin;

use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::response::{Html, IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use router::Router;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa::openapi::security::SecurityRequirement;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::Api;
use super::metrics::Operation;
use super::openapi::{Base, complete, operations};
use super::operations::{batch, keys, list, users};
use super::response::respond::json;
use crate::json::object::Unknown;
use crate::store::Scope;

/// A route, which a match returns.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Its operation, for counting. The front has a shorter path for some.
    pub operation: Operation,
    /// The scope that a key needs; none if no key is needed.
    pub scope: Option<Scope>,
    /// axum's handler with its extractors, which the front calls after its checks.
    pub handler: fn(Request, Api) -> HandlerFuture,
}

/// The future of an axum handler.
type HandlerFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A route with its handler's description: method, pattern and schemas.
struct Entry {
    route: Route,
    described: UtoipaMethodRouter<Api>,
}

const OPEN: Option<Scope> = None;
const READ: Option<Scope> = Some(Scope::Read);
const WRITE: Option<Scope> = Some(Scope::Write);

/// An entry of the table. Method and pattern are written once, in the handler's annotation.
macro_rules! route {
    ($operation:ident, $scope:ident, $($handler:ident)::+) => {
        Entry {
            route: Route {
                operation: Operation::$operation,
                scope: $scope,
                handler: |request, api| Handler::call($($handler)::+, request, api),
            },
            described: routes!($($handler)::+),
        }
    };
}

/// All routes. `Allow` lists the methods of a path in this order.
#[rustfmt::skip]
fn table() -> [Entry; 17] {
    [
        route!(Create,   WRITE, users::create),
        route!(List,     READ,  list::list),
        route!(Get,      READ,  users::get),
        route!(Change,   WRITE, users::replace),
        route!(Change,   WRITE, users::patch),
        route!(Delete,   WRITE, users::delete),
        route!(Validate, READ,  users::validate),
        route!(Count,    READ,  list::count),
        route!(Batch,    WRITE, batch::create),
        route!(Batch,    READ,  batch::get),
        route!(Batch,    WRITE, batch::delete),
        route!(Other,    WRITE, keys::list),
        route!(Other,    WRITE, keys::create),
        route!(Other,    WRITE, keys::get),
        route!(Other,    WRITE, keys::revoke),
        route!(Other,    OPEN,  document),
        route!(Other,    OPEN,  page),
    ]
}

/// The router of the table.
pub fn router() -> Router<Route> {
    let mut builder = router::Builder::new();
    for Entry { route, described: (_, mut paths, _) } in table() {
        for (pattern, item) in &mut paths.paths {
            for (method, _) in operations(item) {
                builder
                    .insert(method, pattern, route)
                    .expect("patterns of the table, each with a method once");
            }
        }
    }
    builder.build().expect("a table of few routes")
}

/// The description of all routes.
pub fn describe(unknown: Unknown) -> Description {
    let mut whole = OpenApiRouter::with_openapi(Base::openapi());
    for Entry { route, mut described } in table() {
        for operation in described.1.paths.values_mut().flat_map(operations).map(|(_, operation)| operation) {
            let scope = route.scope.map(|scope| SecurityRequirement::new("key", [scope.name()]));
            operation.security = scope.map(|scope| vec![scope]);
        }
        whole = whole.routes(described);
    }
    let mut description = whole.into_openapi();
    complete(&mut description, unknown);
    description
}

/// The description, as sent.
pub(super) struct Described {
    json: Bytes,
    page: Bytes,
}

/// The description's path.
const DESCRIPTION: &str = "/openapi.json";

impl Described {
    /// For a service that treats unknown fields like this.
    pub(super) fn new(unknown: Unknown) -> Self {
        let description = describe(unknown);
        Self {
            json: description.to_json().unwrap_or_default().into(),
            page: service::openapi::page(&description, DESCRIPTION).into(),
        }
    }
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "documentation", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json")))]
async fn document(State(api): State<Api>) -> Response {
    json(StatusCode::OK, api.described().json.clone())
}

/// This document, as a page
#[utoipa::path(get, path = "/", tag = "documentation", operation_id = "page",
    responses((status = 200, description = "A page without scripts", content_type = "text/html")))]
async fn page(State(api): State<Api>) -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(api.described().page.clone()))
}
