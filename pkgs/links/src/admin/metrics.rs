//! The admin listener's own metrics, and `/metrics`.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header;
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpResponse, web};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use service::metrics::{CONTENT_TYPE, Registry, encode};
use service::panics::Catch;
use service::problem::Problem;

use super::State;
use super::protocol::failure::Failure;

/// Requests by route and status. There are few requests, so a lock per request is fine.
#[derive(Clone, Debug, Default)]
pub struct Requests(Family<Labels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: String,
    route: String,
    status: u16,
}

/// The pattern of the route, for a request that actix-web did not route.
pub(super) struct Route(pub String);

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("linerate_links_admin_requests", "Requests to the admin listener", self.0.clone());
    }

    /// Counts an answer without any route.
    fn count_unknown(&self, status: u16) {
        let (method, route) = ("other".to_owned(), "unknown".to_owned());
        self.0.get_or_create(&Labels { method, route, status }).inc();
    }
}

impl listener::Refusals for Requests {
    fn refused(&self, status: u16) {
        self.count_unknown(status);
    }
}

/// Counts each answer under its route's pattern. Unknown routes share one label, and so do unknown methods, so that
/// clients cannot create series.
pub(super) async fn count(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let line = format!("{} {}", request.method(), request.path().escape_debug());
    let state = request.app_data::<web::Data<State>>().cloned();
    // A panic fails only its request, and the client gets an answer.
    let response = match Catch::new(Box::pin(next.call(request))).await {
        Ok(response) => response?,
        Err(panic) => {
            panic.log("request", &line);
            if let Some(state) = state {
                state.requests.count_unknown(500);
            }
            return Err(
                Failure::from(Problem::internal("a fault of this program; the log says which")).into()
            );
        }
    };
    let request = response.request();
    if let Some(state) = request.app_data::<web::Data<State>>() {
        let method = match request.method().as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PATCH" | "DELETE") => known,
            _ => "other",
        };
        let route = request.extensions_mut().remove::<Route>().map(|Route(pattern)| pattern);
        let route = route.or_else(|| request.match_pattern()).unwrap_or_else(|| "unknown".to_owned());
        let labels = Labels { method: method.to_owned(), route, status: response.status().as_u16() };
        state.requests.0.get_or_create(&labels).inc();
    }
    Ok(response)
}

/// All metrics, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "health", operation_id = "metrics",
    responses((status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text")))]
pub(super) fn show(state: &State) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, CONTENT_TYPE)).body(encode(&state.registry))
}

#[cfg(test)]
mod tests {
    use actix_web::App;
    use actix_web::middleware::from_fn;
    use actix_web::test::{TestRequest, init_service, try_call_service};

    use super::*;

    #[test]
    fn a_panic_costs_its_request_and_no_other() {
        actix_web::rt::System::new().block_on(async {
            let app = App::new()
                .wrap(from_fn(count))
                .route("/boom", web::to(async || -> HttpResponse { panic!("as a test asks") }))
                .route("/", web::to(HttpResponse::Ok));
            let app = init_service(app).await;
            for _ in 0..3 {
                let refused = try_call_service(&app, TestRequest::with_uri("/boom").to_request()).await;
                assert_eq!(refused.err().map(|error| error.error_response().status().as_u16()), Some(500));
                let answered = try_call_service(&app, TestRequest::with_uri("/").to_request()).await;
                assert_eq!(answered.map(|answer| answer.status().as_u16()).ok(), Some(200));
            }
        });
    }
}
