//! The API's paths, with the scope that each requires. All other paths go to [`pages`].

use actix_web::dev::ServiceRequest;
use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::{HttpRequest, HttpResponse, Route, guard, web};

use super::api::{batch, bulk, domains, keys, links, qr, stats};
use super::{auth, pages};
use crate::store::Scope;

/// A method of a path.
pub struct Endpoint {
    /// GET also answers HEAD.
    pub method: Method,
    /// A pattern; `{name}` is one segment.
    pub path: &'static str,
    /// The scope that a token needs.
    pub scope: Scope,
    handler: fn() -> Route,
}

const fn endpoint(method: Method, path: &'static str, scope: Scope, handler: fn() -> Route) -> Endpoint {
    Endpoint { method, path, scope, handler }
}

const READ: Scope = Scope::Read;
const WRITE: Scope = Scope::Write;

/// The whole API. Fixed paths come before patterns that would also match them.
#[rustfmt::skip]
pub static ENDPOINTS: [Endpoint; 23] = [
    endpoint(Method::POST,   "/api/v1/links",              WRITE, || web::to(links::create)),
    endpoint(Method::GET,    "/api/v1/links",              READ,  || web::to(links::list)),
    endpoint(Method::POST,   "/api/v1/links/batch",        WRITE, || web::to(batch::create)),
    endpoint(Method::POST,   "/api/v1/links/batch-edit",   WRITE, || web::to(batch::edit)),
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
    endpoint(Method::GET,    "/api/v1/keys",               WRITE, || web::to(keys::list)),
    endpoint(Method::POST,   "/api/v1/keys",               WRITE, || web::to(keys::create)),
    endpoint(Method::GET,    "/api/v1/keys/{id}",          WRITE, || web::to(keys::read)),
    endpoint(Method::DELETE, "/api/v1/keys/{id}",          WRITE, || web::to(keys::revoke)),
    endpoint(Method::GET,    "/api/v1/whoami",             READ,  || web::to(keys::whoami)),
];

/// Registers [`ENDPOINTS`]. A known path with another method is 405; other paths go to [`pages::answer`].
pub(super) fn configure(app: &mut web::ServiceConfig) {
    let mut rest = &ENDPOINTS[..];
    while let Some(first) = rest.first() {
        let (same, others) = rest.split_at(rest.iter().take_while(|next| next.path == first.path).count());
        let resource =
            same.iter().fold(web::resource(first.path), |resource, next| resource.route(next.route()));
        app.service(resource.default_service(web::to(wrong_method)));
        rest = others;
    }
    app.default_service(web::to(pages::answer));
}

impl Endpoint {
    fn route(&self) -> Route {
        let route = match self.method {
            Method::GET => (self.handler)().guard(guard::Any(guard::Get()).or(guard::Head())),
            _ => (self.handler)().method(self.method.clone()),
        };
        let scope = self.scope;
        route.wrap(from_fn(move |request: ServiceRequest, next| auth::require(scope, request, next)))
    }
}

/// 405: the path has other methods.
async fn wrong_method(request: HttpRequest) -> HttpResponse {
    let path = request.match_pattern().unwrap_or_default();
    let methods = ENDPOINTS.iter().filter(|endpoint| endpoint.path == path).map(|endpoint| &endpoint.method);
    let names: Vec<_> =
        methods.map(|method| if method == Method::GET { "GET, HEAD" } else { method.as_str() }).collect();
    pages::wrong_method(&names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{CodePolicy, InvalidCode};

    #[test]
    fn no_link_has_a_code_that_is_a_path_of_the_api() {
        let words = ENDPOINTS.iter().filter_map(|endpoint| endpoint.path.strip_prefix("/api/v1/links/"));
        let words: Vec<&str> = words.filter(|word| !word.contains('{')).collect();
        assert!(words.contains(&"import"), "{words:?}");
        for word in words {
            let refused = CodePolicy::default().validate(word);
            assert_eq!(refused, Err(InvalidCode::Reserved(word.to_owned())), "{word}");
        }
    }
}
