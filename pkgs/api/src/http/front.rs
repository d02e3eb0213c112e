//! What every request meets first.
//!
//! Plain reads of one user are answered here, before axum's router: of one that is cached that is a look into the cache
//! and a body of stored bytes, with nothing boxed and nothing awaited. So are documents that are to be checked.
//! Everything else goes to the router.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use listener::Peer;
use service::allowed_hosts::AllowedHosts;
use service::problem::Problem;
use service::socket::network;
use tower_service::Service;

use super::Api;
use super::body::One;
use super::conditions::{Conditions, tag};
use super::failure::{Failure, RETRY_AFTER};
use super::guard::Admitted;
use super::held::Answers;
use super::hosts;
use super::metrics::Operation;
use super::rate::{Buckets, Rate, seconds};
use super::users::validated;
use crate::store::Scope;
use crate::user::{Record, UserId};

/// The body of an answer: bytes that are there, or whatever the router made.
pub type Body = Either<Full<Bytes>, axum::body::Body>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers requests.
#[derive(Clone)]
pub struct Front {
    api: Api,
    router: Router,
    /// Where everybody who can reach the service may use it: for which hosts, and from pages of which.
    hosts: Option<Arc<AllowedHosts>>,
    answers: Arc<Answers>,
    /// Where one address may ask so often and no more.
    addresses: Option<Arc<AddressRate>>,
}

/// How often one address may ask.
struct AddressRate {
    rate: Rate,
    buckets: Buckets<IpAddr>,
}

/// An answer: there, or to come.
// The large one is the common one.
#[allow(clippy::large_enum_variant)]
pub enum Answering {
    /// It is there.
    Now(Option<Response<Body>>),
    /// It is to come.
    Later(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

impl Front {
    /// Before this router.
    pub fn new(api: Api, router: Router) -> Self {
        Self { api, router, hosts: None, answers: Answers::new(u64::MAX), addresses: None }
    }

    /// The same, for requests for these hosts alone: for a service that asks for no key, which a web page must not reach
    /// by DNS rebinding.
    #[must_use]
    pub fn only_for(self, hosts: AllowedHosts) -> Self {
        Self { hosts: Some(Arc::new(hosts)), ..self }
    }

    /// The same, with so many bytes for large answers that are under way together; further ones are refused for now.
    #[must_use]
    pub fn holding(self, bytes: u64) -> Self {
        Self { answers: Answers::new(bytes), ..self }
    }

    /// The same, with so many requests for each address: `burst` at once, and `per_second` beyond.
    #[must_use]
    pub fn limiting_addresses(self, per_second: u32, burst: u32) -> Self {
        let addresses = AddressRate { rate: Rate { per_second, burst }, buckets: Buckets::new() };
        Self { addresses: Some(Arc::new(addresses)), ..self }
    }

    /// The refusal of a request whose client's address asks too often. One that has no address is let in.
    fn exceeded<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let AddressRate { rate, buckets } = &**self.addresses.as_ref()?;
        let fields = request.headers();
        let client = request.extensions().get::<Peer>()?.client(fields)?;
        let exceeded = buckets.take(network(client), *rate).err()?;
        let failure = Failure::from(Problem::new(429, "the address asks more often than it may"))
            .with(header::RETRY_AFTER, HeaderValue::from(seconds(exceeded.retry).max(1)));
        Some(self.tell(fields, Err(failure)))
    }

    /// The refusal of a request that is for another host, or from a page of another origin than may ask.
    fn refusal<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let hosts = self.hosts.as_ref()?;
        let fields = request.headers();
        let origin = fields.get(header::ORIGIN).filter(|origin| !self.api.settings().cors.allows(origin));
        let refused = hosts::check(hosts, request, origin).err()?;
        let failure = Failure::from(Problem::from(refused));
        Some(self.tell(fields, Err(failure)))
    }

    /// The answer, if it can be had without waiting: a cached user to somebody known.
    fn at_once(&self, id: UserId, fields: &HeaderMap) -> Option<Response<Body>> {
        let record = self.api.users().cached(id)?;
        let admitted = self.api.0.guard.at_once(fields)?;
        Some(self.tell(fields, admitted.and_then(|admitted| one(fields, admitted, Some(record)))))
    }

    /// The answer once the database has been asked.
    async fn read(self, id: UserId, fields: HeaderMap) -> Response<Body> {
        let read = async {
            let admitted = self.api.0.guard.admit(&fields).await?;
            admitted.caller.require(Scope::Read)?;
            let record = self.api.users().read(id).await?;
            one(&fields, admitted, record)
        };
        let read = read.await;
        self.tell(&fields, read)
    }

    /// The answer to a document that is to be checked.
    async fn validate<B>(self, fields: HeaderMap, body: B) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>>,
    {
        let checked = async {
            let admitted = self.api.0.guard.admit(&fields).await?;
            admitted.caller.require(Scope::Read)?;
            acceptable(&fields)?;
            let One(body) = One::of(&fields, body, &self.api).await?;
            let mut response = Response::new(validated(&self.api, &body)?);
            response.headers_mut().insert(header::CONTENT_TYPE, JSON);
            Ok::<_, Failure>((admitted, response))
        };
        let checked = checked.await;
        self.tell(&fields, checked)
    }

    /// An answer with what the client is told beside it.
    fn tell(
        &self,
        fields: &HeaderMap,
        answer: Result<(Admitted, Response<Bytes>), Failure>,
    ) -> Response<Body> {
        let mut response = match answer {
            Ok((admitted, mut response)) => {
                if let Some(left) = &admitted.left {
                    left.tell(response.headers_mut());
                }
                response.map(|body| Either::Left(Full::new(body)))
            }
            Err(failure) => failure.into_response().map(Either::Right),
        };
        self.api.settings().cors.tell(fields, response.headers_mut());
        response
    }

    async fn answer<B>(mut self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let settings = self.api.0.settings.load_full();
        if let Some(response) = settings.cors.preflight::<Full<Bytes>>(request.method(), request.headers()) {
            return response.map(Either::Left);
        }
        // For CORS, which has to be told in refusals too.
        let origin = request.headers().get(header::ORIGIN).cloned().filter(|_| settings.cors.is_on());
        let mut response = match self.api.0.guard.admit(request.headers()).await {
            Ok(admitted) => {
                let (parts, body) = self.route(request, &admitted).await.into_parts();
                let mut response = match self.answers.hold(body) {
                    Some(body) => Response::from_parts(parts, body),
                    None => busy().into_response(),
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

    async fn route<B>(&mut self, request: Request<B>, admitted: &Admitted) -> axum::response::Response
    where
        B: http_body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let mut request = request.map(axum::body::Body::new);
        if let Err(failure) = acceptable(request.headers()) {
            return failure.into_response();
        }
        request.extensions_mut().insert(admitted.caller.clone());
        let options = *request.method() == Method::OPTIONS;
        let Ok(mut response) = self.router.call(request).await;
        // The router knows which methods there are, and says so where it knows none.
        if options && response.status() == StatusCode::METHOD_NOT_ALLOWED {
            let allow = response.headers().get(header::ALLOW).and_then(|value| value.to_str().ok());
            let allow = format!("{},OPTIONS", allow.unwrap_or_default());
            response = StatusCode::NO_CONTENT.into_response();
            if let Ok(allow) = HeaderValue::from_str(allow.trim_start_matches(',')) {
                response.headers_mut().insert(header::ALLOW, allow);
            }
        }
        response
    }
}

/// 503: there is no room for the answer.
fn busy() -> Failure {
    let detail = "too many large answers are under way; ask for fewer users, or later";
    Failure::from(Problem::unavailable(detail)).with(header::RETRY_AFTER, RETRY_AFTER)
}

/// A user as it is stored, to somebody who may read it.
fn one(
    fields: &HeaderMap,
    admitted: Admitted,
    record: Option<Record>,
) -> Result<(Admitted, Response<Bytes>), Failure> {
    admitted.caller.require(Scope::Read)?;
    acceptable(fields)?;
    let response = found(fields, &record.ok_or_else(Failure::no_user)?)?;
    Ok((admitted, response))
}

/// The answer to a read of a user.
///
/// # Errors
/// 412, and 400 for malformed conditions.
pub(super) fn found(fields: &HeaderMap, record: &Record) -> Result<Response<Bytes>, Failure> {
    let unchanged = Conditions::of(fields)?.unchanged(record.version)?;
    let mut response = Response::new(if unchanged { Bytes::new() } else { record.body.clone() });
    let fields = response.headers_mut();
    fields.reserve(4);
    fields.insert(header::ETAG, tag(record.version));
    // Stored copies are asked about each time: a tag costs nothing to compare.
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        fields.insert(header::CONTENT_TYPE, JSON);
    }
    Ok(response)
}

/// Whether the client takes JSON, or the page that describes it (RFC 9110, section 12.5.1).
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
        let operation = Operation::of(request.method(), request.uri().path());
        if let Some(response) = self.exceeded(&request).or_else(|| self.refusal(&request)) {
            self.api.0.metrics.count(operation, response.status(), begin);
            return Answering::Now(Some(response));
        }
        match plain(operation, &request) {
            Some(Plain::Read(id)) => {
                if let Some(response) = self.at_once(id, request.headers()) {
                    self.api.0.metrics.count(operation, response.status(), begin);
                    return Answering::Now(Some(response));
                }
                let fields = request.into_parts().0.headers;
                Answering::later(self.api.clone(), operation, begin, self.clone().read(id, fields))
            }
            Some(Plain::Validate) => {
                let (parts, body) = request.into_parts();
                let response = self.clone().validate(parts.headers, body);
                Answering::later(self.api.clone(), operation, begin, response)
            }
            None => Answering::later(self.api.clone(), operation, begin, self.clone().answer(request)),
        }
    }
}

/// What is answered without the router.
enum Plain {
    /// A read of one user.
    Read(UserId),
    /// A document to be checked.
    Validate,
}

/// What a request is about, where it is about nothing but that.
fn plain<B>(operation: Operation, request: &Request<B>) -> Option<Plain> {
    if request.uri().query().is_some() {
        return None;
    }
    match operation {
        Operation::Get => request.uri().path().strip_prefix("/v1/users/")?.parse().ok().map(Plain::Read),
        Operation::Validate => Some(Plain::Validate),
        _ => None,
    }
}

impl Answering {
    fn later(
        api: Api,
        operation: Operation,
        begin: Instant,
        response: impl Future<Output = Response<Body>> + Send + 'static,
    ) -> Self {
        Self::Later(Box::pin(async move {
            let response = response.await;
            // A task may have moved to another thread meanwhile, which then counts it.
            api.0.metrics.count(operation, response.status(), begin);
            response
        }))
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
