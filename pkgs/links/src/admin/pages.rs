//! Pages without a key: health, metrics and the API's description. [`router`] routes them. actix-web routes only the
//! API, and passes all other requests here.

use std::fmt;

use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, ResponseError, web};
use http::Method;
use router::{Lookup, Router};
use service::admin::METRICS_PATH;
use service::health::{ALIVE_PATH, READY_PATH};
use service::problem::Problem;

use super::protocol::failure::Failure;
use super::{State, health, metrics, openapi};

/// A page.
pub struct Page {
    /// The path. GET also answers HEAD.
    pub path: &'static str,
    show: fn(&State) -> HttpResponse,
}

const fn page(path: &'static str, show: fn(&State) -> HttpResponse) -> Page {
    Page { path, show }
}

/// All pages.
pub static PAGES: [Page; 5] = [
    page(ALIVE_PATH, |_| health::alive()),
    page(READY_PATH, health::ready),
    page(METRICS_PATH, metrics::show),
    page("/", |_| openapi::page()),
    page(openapi::PATH, |_| openapi::document()),
];

/// Further paths of pages: the old path of the description, and the base URL that the server prints.
static ALIASES: [Page; 3] = [
    page("/api/v1/openapi.json", |_| openapi::document()),
    page("/api/v1", |_| openapi::page()),
    page("/api/v1/", |_| openapi::page()),
];

/// The compiled table.
pub(super) struct Pages(Router<&'static Page>);

impl Pages {
    /// Compiles [`PAGES`] and the aliases.
    pub(super) fn new() -> Self {
        let mut routes = router::Builder::new();
        for page in PAGES.iter().chain(&ALIASES) {
            routes.insert(Method::GET, page.path, page).expect("paths of the table, each once");
        }
        Self(routes.build().expect("a table of few routes"))
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

/// Answers requests outside the API: a known path with another method is 405, anything else 404.
pub(super) async fn answer(request: HttpRequest, state: web::Data<State>) -> HttpResponse {
    let routes = &state.pages.0;
    // actix-web has already checked that the method is a token.
    let method = Method::from_bytes(request.method().as_str().as_bytes()).unwrap_or_default();
    // Every path has a GET, so its pattern is the label of any method.
    if let Some(found) = routes.find(&Method::GET, request.path()).matched() {
        request.extensions_mut().insert(metrics::Route(found.pattern().to_owned()));
    }
    match routes.find(&method, request.path()) {
        Lookup::Match(found) => (found.value.show)(&state),
        Lookup::MethodNotAllowed(allow) => {
            wrong_method(&allow.to_str().unwrap_or_default().replace(',', ", "))
        }
        Lookup::NotFound => unknown(),
    }
}

/// 405, with the `Allow` of the path.
pub(super) fn wrong_method(allowed: &str) -> HttpResponse {
    let failure = Failure::from(Problem::new(405, format!("the methods here are {allowed}")));
    match HeaderValue::from_str(allowed) {
        Ok(value) => failure.with_header(header::ALLOW, value),
        Err(_) => failure,
    }
    .error_response()
}

fn unknown() -> HttpResponse {
    Failure::from(Problem::not_found("nothing is here; /openapi.json tells what is where")).error_response()
}
