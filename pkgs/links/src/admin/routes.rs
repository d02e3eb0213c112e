//! What is served, and who may ask.

use actix_web::dev::ServiceRequest;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderValue};
use actix_web::middleware::from_fn;
use actix_web::{HttpRequest, HttpResponse, ResponseError, Route, guard, web};
use service::problem::Problem;

use super::api::{batch, bulk, domains, links, qr, stats};
use super::protocol::failure::Failure;
use super::protocol::strict;
use super::{auth, health, metrics, openapi};
use crate::store::Scope;

/// One method of one path.
pub struct Endpoint {
    /// A GET answers HEAD too.
    pub method: Method,
    /// A pattern: `{name}` is one segment.
    pub path: &'static str,
    /// The scope a token needs; none where no token is needed.
    pub scope: Option<Scope>,
    handler: fn() -> Route,
}

const fn endpoint(
    method: Method,
    path: &'static str,
    scope: Option<Scope>,
    handler: fn() -> Route,
) -> Endpoint {
    Endpoint { method, path, scope, handler }
}

const OPEN: Option<Scope> = None;
const READ: Option<Scope> = Some(Scope::Read);
const WRITE: Option<Scope> = Some(Scope::Write);

/// Everything that is served. Fixed paths stand before the patterns that would match them too.
#[rustfmt::skip]
pub static ENDPOINTS: [Endpoint; 22] = [
    endpoint(Method::GET,    "/healthz",                   OPEN,  || web::to(health::alive)),
    endpoint(Method::GET,    "/readyz",                    OPEN,  || web::to(health::ready)),
    endpoint(Method::GET,    "/metrics",                   OPEN,  || web::to(metrics::show)),
    endpoint(Method::GET,    "/",                          OPEN,  || web::to(openapi::page)),
    endpoint(Method::GET,    "/openapi.json",              OPEN,  || web::to(openapi::document)),
    endpoint(Method::POST,   "/api/v1/links",              WRITE, || web::to(links::create)),
    endpoint(Method::GET,    "/api/v1/links",              READ,  || web::to(links::list)),
    endpoint(Method::POST,   "/api/v1/links/batch",        WRITE, || web::to(batch::create)),
    endpoint(Method::POST,   "/api/v1/links/batch-delete", WRITE, || web::to(batch::delete)),
    endpoint(Method::GET,    "/api/v1/links/export",       READ,  || web::to(bulk::export)),
    endpoint(Method::POST,   "/api/v1/links/import",       WRITE, || web::to(bulk::import)),
    endpoint(Method::GET,    "/api/v1/links/{code}",       READ,  || web::to(links::read)),
    endpoint(Method::PATCH,  "/api/v1/links/{code}",       WRITE, || web::to(links::edit)),
    endpoint(Method::DELETE, "/api/v1/links/{code}",       WRITE, || web::to(links::delete)),
    endpoint(Method::GET,    "/api/v1/links/{code}/stats", READ,  || web::to(stats::of_link)),
    endpoint(Method::GET,    "/api/v1/links/{code}/qr",    READ,  || web::to(qr::draw)),
    endpoint(Method::GET,    "/api/v1/stats",              READ,  || web::to(stats::of_all)),
    endpoint(Method::GET,    "/api/v1/domains",            READ,  || web::to(domains::list)),
    endpoint(Method::POST,   "/api/v1/domains",            WRITE, || web::to(domains::create)),
    endpoint(Method::GET,    "/api/v1/domains/{host}",     READ,  || web::to(domains::read)),
    endpoint(Method::PATCH,  "/api/v1/domains/{host}",     WRITE, || web::to(domains::edit)),
    endpoint(Method::DELETE, "/api/v1/domains/{host}",     WRITE, || web::to(domains::delete)),
];

/// Other places of what [`ENDPOINTS`] has: where the description was, and the base that is printed and asked for.
#[rustfmt::skip]
static ALIASES: [Endpoint; 3] = [
    endpoint(Method::GET, "/api/v1/openapi.json", OPEN, || web::to(openapi::document)),
    endpoint(Method::GET, "/api/v1",              OPEN, || web::to(openapi::page)),
    endpoint(Method::GET, "/api/v1/",             OPEN, || web::to(openapi::page)),
];

/// Puts [`ENDPOINTS`] in place; a known path with another method is 405, anything else 404.
pub(super) fn configure(app: &mut web::ServiceConfig) {
    app.route(&format!("{}{{status}}", strict::PATH), web::to(refused));
    for alias in &ALIASES {
        let resource = web::resource(alias.path).route(alias.route());
        app.service(resource.default_service(web::to(wrong_method)));
    }
    let mut rest = &ENDPOINTS[..];
    while let Some(first) = rest.first() {
        let (same, others) = rest.split_at(rest.iter().take_while(|next| next.path == first.path).count());
        let resource =
            same.iter().fold(web::resource(first.path), |resource, next| resource.route(next.route()));
        app.service(resource.default_service(web::to(wrong_method)));
        rest = others;
    }
    app.default_service(web::to(unknown));
}

impl Endpoint {
    fn route(&self) -> Route {
        let route = match self.method {
            Method::GET => (self.handler)().guard(guard::Any(guard::Get()).or(guard::Head())),
            _ => (self.handler)().method(self.method.clone()),
        };
        match self.scope {
            Some(scope) => {
                route.wrap(from_fn(move |request: ServiceRequest, next| auth::require(scope, request, next)))
            }
            None => route,
        }
    }
}

/// What `Allow` says of a path.
fn allowed(path: &str) -> String {
    let methods = ENDPOINTS
        .iter()
        .chain(&ALIASES)
        .filter(|endpoint| endpoint.path == path)
        .map(|endpoint| &endpoint.method);
    let names: Vec<_> =
        methods.map(|method| if method == Method::GET { "GET, HEAD" } else { method.as_str() }).collect();
    names.join(", ")
}

async fn wrong_method(request: HttpRequest) -> HttpResponse {
    let allowed = allowed(&request.match_pattern().unwrap_or_default());
    let failure = Failure::from(Problem::new(405, format!("the methods here are {allowed}")));
    match HeaderValue::from_str(&allowed) {
        Ok(value) => failure.with_header(header::ALLOW, value),
        Err(_) => failure,
    }
    .error_response()
}

/// What a refused head is replaced by.
async fn refused(status: web::Path<u16>) -> HttpResponse {
    match strict::detail(*status) {
        Some(detail) => Failure::from(Problem::new(*status, detail)).error_response(),
        None => unknown().await,
    }
}

async fn unknown() -> HttpResponse {
    Failure::from(Problem::not_found("nothing is here; /openapi.json tells what is where")).error_response()
}
