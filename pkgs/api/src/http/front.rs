//! The first code for every request.
//!
//! One match gives a request's operation, the required scope, the id in its path and the handler. Plain reads of a user
//! are answered here. If the user is cached, that is a look-up and a body of stored bytes, without boxing or awaiting.
//! Documents to be checked are answered here too. Everything else goes to the route's axum handler.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::time::Instant;

use axum::response::IntoResponse;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use listener::Peer;
use postgres::{Comment, commented};
use router::{Lookup, Router};
use service::access_log::{Actor, RequestContext, recorded_trace};
use service::allowed_hosts::AllowedHosts;
use service::problem::Problem;
use service::rate_limit::{Rate, RateLimiter};
use service::request_id::RequestId;
use service::socket::network;
use tower_service::Service;

use super::access::guard::Admitted;
use super::access::hosts;
use super::access::rate::{self, REMEMBERED, Remaining};
use super::audit::Audit;
use super::call::Call;
use super::document::validated;
use super::failure::Failure;
use super::metrics::Operation;
use super::request::body::One;
use super::response::budget::{ResponseBudget, SMALL};
use super::response::respond::{JSON, found};
use super::routes::Route;
use super::{Api, Logs};
use crate::store::Scope;
use crate::user::{Record, UserId};

/// The body of an answer: existing bytes, or a handler's body.
pub type Body = Either<Full<Bytes>, axum::body::Body>;

/// Answers requests.
#[derive(Clone)]
pub struct Front {
    api: Api,
    routes: Arc<Router<Route>>,
    /// If no keys are required: the hosts for which requests are accepted, and whose pages may send them.
    hosts: Option<Arc<AllowedHosts>>,
    answers: Arc<ResponseBudget>,
    /// The rate limit per address, if there is one.
    addresses: Option<Arc<AddressRate>>,
}

/// How a cache handled the request (RFC 9211).
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// The rate limit per address.
struct AddressRate {
    rate: Rate,
    limiter: RateLimiter,
}

/// The target of a request.
enum Target {
    /// A route, with the id in its path if there is one.
    Route(Route, Option<UserId>),
    /// A path that allows only these methods.
    OtherMethods(HeaderValue),
    /// An unknown path.
    Nothing,
}

/// An answer, now or later.
// The large variant is the common one.
#[allow(clippy::large_enum_variant)]
pub enum Answering {
    /// It is ready.
    Now(Option<Response<Body>>),
    /// It follows later.
    Later(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

impl Front {
    /// With these routes.
    pub fn new(api: Api, routes: Router<Route>) -> Self {
        Self {
            api,
            routes: Arc::new(routes),
            hosts: None,
            answers: ResponseBudget::new(u64::MAX),
            addresses: None,
        }
    }

    /// Accepts only requests for these hosts. Needed if no keys are required, so that web pages cannot send requests by
    /// DNS rebinding.
    #[must_use]
    pub fn only_for(self, hosts: AllowedHosts) -> Self {
        Self { hosts: Some(Arc::new(hosts)), ..self }
    }

    /// Limits large answers that are being sent to this many bytes in total. Further ones are refused for now.
    #[must_use]
    pub fn holding(self, bytes: u64) -> Self {
        Self { answers: ResponseBudget::new(bytes), ..self }
    }

    /// Limits each address to `burst` requests at once, and `per_second` in the long run.
    #[must_use]
    pub fn limiting_addresses(self, per_second: u32, burst: u32) -> Self {
        let addresses =
            AddressRate { rate: rate::rate(per_second, burst), limiter: RateLimiter::new(REMEMBERED) };
        Self { addresses: Some(Arc::new(addresses)), ..self }
    }

    /// The refusal if the client's address has exceeded its rate. A request without an address is admitted.
    fn exceeded<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let AddressRate { rate, limiter } = &**self.addresses.as_ref()?;
        let fields = request.headers();
        let client = request.extensions().get::<Peer>()?.client(fields)?;
        let exceeded = limiter.take(network(client), *rate, Instant::now()).err()?;
        let failure = Failure::from(Problem::new(429, "the address asks more often than it may"))
            .with(header::RETRY_AFTER, HeaderValue::from(exceeded.retry_seconds().max(1)));
        Some(tell(&self.api, &self.answers, fields, None, Err(failure)))
    }

    /// The target of a request.
    #[inline]
    fn target<B>(&self, request: &Request<B>) -> Target {
        match self.routes.find(request.method(), request.uri().path()) {
            Lookup::Match(found) => {
                let id = found.param("id").and_then(|text| match text.parse() {
                    Ok(id) => Some(id),
                    Err(_) => found.decoded("id")?.ok()?.parse().ok(),
                });
                Target::Route(*found.value, id)
            }
            Lookup::MethodNotAllowed(allow) => Target::OtherMethods(allow.clone()),
            Lookup::NotFound => Target::Nothing,
        }
    }

    /// The refusal of a request for another host, or from a page of an origin that is not allowed.
    fn refusal<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let hosts = self.hosts.as_ref()?;
        let fields = request.headers();
        let origin = fields.get(header::ORIGIN).filter(|origin| !self.api.settings().cors.allows(origin));
        let refused = hosts::check(hosts, request, origin).err()?;
        let failure = Failure::from(Problem::from(refused));
        Some(tell(&self.api, &self.answers, fields, None, Err(failure)))
    }
}

/// The answer, if it is possible without waiting: a cached user for a known client.
fn at_once(
    api: &Api,
    answers: &Arc<ResponseBudget>,
    route: Route,
    id: UserId,
    fields: &HeaderMap,
    context: Option<&RequestContext>,
) -> Option<Response<Body>> {
    let (record, age) = match api.users().cached(id) {
        Some(record) => (record, None),
        None => api.users().lingering(id).map(|(record, age)| (record, Some(age)))?,
    };
    let (left, answer) = match api.0.guard.at_once(fields, context)? {
        Ok(admitted) => (admitted.left, one(route, fields, &admitted, Some(record))),
        Err(failure) => (None, Err(failure)),
    };
    let mut response = tell(api, answers, fields, left, answer);
    if let Some(age) = age {
        response.headers_mut().insert(CACHE_STATUS, away(age));
    }
    Some(response)
}

/// The field for an answer from the cache while the database is away: how many seconds old it may be (RFC 9211, section
/// 2.5).
fn away(age: Duration) -> HeaderValue {
    let text = format!("linerate-api; hit; ttl=-{}; detail=database-away", age.as_secs().max(1));
    HeaderValue::from_str(&text).expect("it is ASCII")
}

/// The answer after a query.
async fn read(
    api: &Api,
    answers: &Arc<ResponseBudget>,
    route: Route,
    id: UserId,
    fields: HeaderMap,
    context: Option<RequestContext>,
) -> Response<Body> {
    let mut left = None;
    let read = async {
        let admitted = api.0.guard.admit(&fields, context.as_ref()).await?;
        left = admitted.left;
        admitted.caller.require(route.scope)?;
        // Only now is it known that the client may read. An issuer's token, for example, needs no database.
        if let Some((record, age)) = api.users().lingering(id) {
            let mut response = one(route, &fields, &admitted, Some(record))?;
            response.headers_mut().insert(CACHE_STATUS, away(age));
            return Ok(response);
        }
        let record = api.users().read(id).await?;
        one(route, &fields, &admitted, record)
    };
    let read = read.await;
    tell(api, answers, &fields, left, read)
}

/// The answer to a document that is to be checked.
async fn validate<B>(
    api: &Api,
    answers: &Arc<ResponseBudget>,
    route: Route,
    (fields, body): (HeaderMap, B),
    context: Option<RequestContext>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>>,
{
    let mut left = None;
    let checked = async {
        let admitted = api.0.guard.admit(&fields, context.as_ref()).await?;
        left = admitted.left;
        admitted.caller.require(route.scope)?;
        acceptable(&fields)?;
        let One(body) = One::of(&fields, body, api).await?;
        let mut response = Response::new(validated(api, &body)?);
        response.headers_mut().insert(header::CONTENT_TYPE, JSON);
        Ok::<_, Failure>(response)
    };
    let checked = checked.await;
    tell(api, answers, &fields, left, checked)
}

/// Adds fields for the client, and what its key has left, to an answer.
fn tell(
    api: &Api,
    answers: &Arc<ResponseBudget>,
    fields: &HeaderMap,
    left: Option<Remaining>,
    answer: Result<Response<Bytes>, Failure>,
) -> Response<Body> {
    let held = answer.and_then(|response| held(answers, response));
    let mut response = held.unwrap_or_else(|failure| failure.into_response().map(Either::Right));
    if let Some(left) = left {
        left.tell(response.headers_mut());
    }
    api.settings().cors.tell(fields, response.headers_mut());
    response
}

/// The answer with its body, which is counted if it is large.
///
/// # Errors
/// 503 if there is no room for it.
fn held(answers: &Arc<ResponseBudget>, response: Response<Bytes>) -> Result<Response<Body>, Failure> {
    if response.body().len() as u64 <= SMALL {
        return Ok(response.map(|body| Either::Left(Full::new(body))));
    }
    let (parts, body) = response.into_parts();
    let body = answers.hold(body.into(), false).ok_or_else(Failure::no_room)?;
    Ok(Response::from_parts(parts, Either::Right(body)))
}

/// The answer to any other request.
async fn answer<B>(
    api: &Api,
    answers: &Arc<ResponseBudget>,
    target: Target,
    request: Request<B>,
    context: Option<RequestContext>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    let settings = api.0.settings.load_full();
    if let Some(response) = settings.cors.preflight::<Full<Bytes>>(request.method(), request.headers()) {
        return response.map(Either::Left);
    }
    // What a write has done is told in any case.
    let always = matches!(&target, Target::Route(route, _) if route.scope == Some(Scope::Write));
    // For CORS, which refusals need too.
    let origin = request.headers().get(header::ORIGIN).cloned().filter(|_| settings.cors.is_on());
    let mut response = match api.0.guard.admit(request.headers(), context.as_ref()).await {
        Ok(admitted) => {
            // A large write may be answered by as much, and a small change by a large user. So far nothing is done.
            let is_small = request.method() != Method::PATCH
                && request.body().size_hint().upper().is_some_and(|bytes| bytes <= SMALL);
            let response = if always && !is_small && answers.is_full() {
                Err(Failure::no_room())
            } else {
                handle(api, answers, target, request, &admitted, context).await
            };
            let (parts, body) = response.unwrap_or_else(IntoResponse::into_response).into_parts();
            let mut response = match answers.hold(body, always) {
                Some(body) => Response::from_parts(parts, body),
                None => Failure::no_room().into_response(),
            };
            if let Some(left) = &admitted.left {
                left.tell(response.headers_mut());
            }
            response
        }
        Err(failure) => failure.into_response(),
    };
    let asked: HeaderMap = origin.into_iter().map(|origin| (header::ORIGIN, origin)).collect();
    settings.cors.tell(&asked, response.headers_mut());
    response.map(Either::Right)
}

/// The answer of a route's handler, if the client may use it.
///
/// # Errors
/// 406, 401 and 403; 404 and 405 if there is no route.
async fn handle<B>(
    api: &Api,
    answers: &Arc<ResponseBudget>,
    target: Target,
    request: Request<B>,
    admitted: &Admitted,
    context: Option<RequestContext>,
) -> Result<axum::response::Response, Failure>
where
    B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    acceptable(request.headers())?;
    let (route, id) = match target {
        Target::Route(route, id) => (route, id),
        Target::OtherMethods(allow) => return Ok(other_methods(request.method(), allow)),
        Target::Nothing => {
            return Err(Problem::not_found("nothing is here; /openapi.json tells what is where").into());
        }
    };
    admitted.caller.require(route.scope)?;
    let audit = match route.scope {
        Some(Scope::Write) => audit(api, &request, admitted, context),
        _ => Audit::default(),
    };
    let mut request = request.map(axum::body::Body::new);
    let (caller, answers) = (admitted.caller.clone(), Arc::clone(answers));
    request.extensions_mut().insert(Call { caller, id, audit: audit.clone(), answers });
    Ok(audit.answer((route.handler)(request, api.clone())).await)
}

/// The audit log for a request.
fn audit<B>(api: &Api, request: &Request<B>, admitted: &Admitted, context: Option<RequestContext>) -> Audit {
    let Some(auditor) = api.0.logs.audit.clone() else { return Audit::default() };
    let peer = request.extensions().get::<Peer>();
    let fields = request.headers();
    let key = admitted.key.as_deref();
    let actor = Actor {
        key: key.map(|key| key.id),
        name: key.map(|key| key.name.clone()).or(admitted.bearer.as_ref().map(|bearer| bearer.name.clone())),
        client: peer.and_then(|peer| peer.client(fields)),
    };
    // A request outside the access log may have an id from a trusted proxy.
    let given = || peer?.proxies.as_ref().and_then(|_| RequestId::of_fields(fields));
    let id = context.map(|context| context.id().clone()).or_else(given).unwrap_or_else(RequestId::generate);
    Audit::new(auditor, id, actor)
}

/// The answer for a path that allows only these methods: 204 for OPTIONS, 405 for others.
fn other_methods(method: &Method, allow: HeaderValue) -> axum::response::Response {
    let (mut response, allow) = if *method == Method::OPTIONS {
        let allow = HeaderValue::from_bytes(&[allow.as_bytes(), b",OPTIONS"].concat()).unwrap_or(allow);
        (StatusCode::NO_CONTENT.into_response(), allow)
    } else {
        let detail = "there is no such method here; Allow has those that there are";
        (Failure::from(Problem::new(405, detail)).into_response(), allow)
    };
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

/// A stored user, for a client that may read it.
fn one(
    route: Route,
    fields: &HeaderMap,
    admitted: &Admitted,
    record: Option<Record>,
) -> Result<Response<Bytes>, Failure> {
    admitted.caller.require(route.scope)?;
    acceptable(fields)?;
    found(fields, &record.ok_or_else(Failure::no_user)?)
}

/// Whether the client accepts JSON, or the page that describes it (RFC 9110, section 12.5.1).
fn acceptable(fields: &HeaderMap) -> Result<(), Failure> {
    let mut ranges = fields.get_all(header::ACCEPT).iter().peekable();
    let taken = |range: &str| {
        let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
        let refused = parameters.split(';').any(|parameter| {
            let parameter = parameter.trim();
            let quality = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
            quality.is_some_and(|quality| quality.trim_end_matches(['0', '.']).is_empty())
        });
        let known =
            ["*/*", "application/*", "application/json", "application/problem+json", "text/html", "text/*"];
        !refused && known.iter().any(|known| known.eq_ignore_ascii_case(name.trim()))
    };
    if ranges.peek().is_none() {
        return Ok(());
    }
    if ranges.any(|value| value.to_str().is_ok_and(|text| text.split(',').any(taken))) {
        return Ok(());
    }
    Err(Problem::new(406, "answers are application/json").into())
}

impl<B> Service<Request<B>> for Front
where
    B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let begin = Instant::now();
        let target = self.target(&request);
        let operation = match &target {
            Target::Route(route, _) => route.operation,
            _ => Operation::Other,
        };
        if let Some(response) = self.exceeded(&request).or_else(|| self.refusal(&request)) {
            self.api.0.metrics.count(operation, response.status(), begin);
            return Answering::Now(Some(response));
        }
        let logs = &self.api.0.logs;
        let context = if logs.access { request.extensions().get::<RequestContext>().cloned() } else { None };
        match (target, operation) {
            (Target::Route(route, Some(id)), Operation::Get) if request.uri().query().is_none() => {
                let now = at_once(&self.api, &self.answers, route, id, request.headers(), context.as_ref());
                if let Some(response) = now {
                    self.api.0.metrics.count(operation, response.status(), begin);
                    return Answering::Now(Some(response));
                }
                let trace = logs.trace(&request);
                let (api, answers) = (self.api.clone(), Arc::clone(&self.answers));
                let fields = request.into_parts().0.headers;
                Answering::Later(Box::pin(async move {
                    let response = read(&api, &answers, route, id, fields, context);
                    let response = commented(trace, response).await;
                    api.counted(operation, response, begin)
                }))
            }
            (Target::Route(route, _), Operation::Validate) if request.uri().query().is_none() => {
                let (api, answers) = (self.api.clone(), Arc::clone(&self.answers));
                let (parts, body) = request.into_parts();
                Answering::Later(Box::pin(async move {
                    let response = validate(&api, &answers, route, (parts.headers, body), context).await;
                    api.counted(operation, response, begin)
                }))
            }
            (target, _) => {
                let trace = logs.trace(&request);
                let (api, answers) = (self.api.clone(), Arc::clone(&self.answers));
                Answering::Later(Box::pin(async move {
                    let response = answer(&api, &answers, target, request, context);
                    let response = commented(trace, response).await;
                    api.counted(operation, response, begin)
                }))
            }
        }
    }
}

impl Logs {
    /// The comment for a request's statements: its trace, if that is recorded and the database is to know it.
    fn trace<B>(&self, request: &Request<B>) -> Option<Comment> {
        let trace = self.trace.then(|| recorded_trace(request.extensions(), request.headers())).flatten()?;
        Comment::new("traceparent", trace.as_str())
    }
}

impl Api {
    /// Counts an answer. If its task has moved to another thread, that thread counts it.
    fn counted(&self, operation: Operation, response: Response<Body>, begin: Instant) -> Response<Body> {
        self.0.metrics.count(operation, response.status(), begin);
        response
    }
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            // A future that is done is not polled again.
            Self::Now(response) => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
            Self::Later(response) => response.as_mut().poll(context).map(Ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_no_json_is_told() {
        for (accept, status) in [
            (None, None),
            (Some("*/*"), None),
            (Some("application/json"), None),
            (Some("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"), None),
            (Some("application/*;q=0.1"), None),
            (Some("image/png"), Some(406)),
            (Some("application/json;q=0"), Some(406)),
            (Some("application/json; q=0.000, */*;q=0"), Some(406)),
            (Some("application/xml"), Some(406)),
        ] {
            let mut fields = HeaderMap::new();
            if let Some(accept) = accept {
                fields.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(
                acceptable(&fields).err().map(|failure| failure.problem().status),
                status,
                "{accept:?}"
            );
        }
    }
}
