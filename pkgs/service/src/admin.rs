//! The `tower` service of an admin listener: `/healthz`, `/readyz`, `/metrics`, and pages of the service itself.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use router::{Lookup, Router};
use tower_service::Service;

use crate::allowed_hosts::{AllowedHosts, Refused, SocketFamily};
use crate::health::{self, Answer};
use crate::metrics::{CONTENT_TYPE, Registry, encode};
use crate::problem::Problem;
use crate::ready::Readiness;
use crate::socket::Address;
use crate::tls::AdminTlsArgs;

/// The path of metrics.
pub const METRICS_PATH: &str = "/metrics";

/// Whether and where the admin listener listens.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminArgs {
    /// Where health and metrics are answered: IP:PORT, unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<Address>,

    /// Its TLS, if configured.
    #[command(flatten)]
    pub tls: AdminTlsArgs,
}

/// Answers the requests of an admin listener. Clones share their state.
#[derive(Clone)]
pub struct Admin {
    shared: Arc<Shared>,
    hosts: Option<Arc<AllowedHosts>>,
    check: Option<Arc<Check>>,
    more: Option<Arc<More>>,
}

struct Shared {
    routes: Router<Page>,
    readiness: Readiness,
    registry: Registry,
}

/// A page of the admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    /// Whether the process runs.
    Alive,
    /// Whether requests should be sent here.
    Ready,
    /// The metrics.
    Metrics,
}

/// What a request asks for.
enum Target {
    Page(Page),
    /// Nothing, since its host is not allowed.
    Refused(Refused),
    /// A page that allows only these methods.
    OtherMethods(HeaderValue),
    /// Perhaps a page of the service, by path and query.
    More(String),
    /// An unknown page.
    Nothing,
}

/// Checks what the service depends on. The error says why it does not answer.
type Check = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync;

/// The service's own pages, by path and query. None if there is no such page.
type More = dyn Fn(String) -> Pin<Box<dyn Future<Output = Option<Answer>> + Send>> + Send + Sync;

impl Admin {
    /// For a service that is ready when `readiness` says so, with the metrics in `registry`.
    pub fn new(readiness: Readiness, registry: Registry) -> Self {
        let mut routes = router::Builder::new();
        for (path, page) in [
            (health::ALIVE_PATH, Page::Alive),
            (health::READY_PATH, Page::Ready),
            (METRICS_PATH, Page::Metrics),
        ] {
            routes.insert(Method::GET, path, page).expect("three paths");
        }
        let routes = routes.build().expect("three routes");
        Self {
            shared: Arc::new(Shared { routes, readiness, registry }),
            hosts: None,
            check: None,
            more: None,
        }
    }

    /// Has `/readyz` also run `check` once the service is ready, such as whether its database answers.
    #[must_use]
    pub fn checking<F, U>(self, check: F) -> Self
    where
        F: Fn() -> U + Send + Sync + 'static,
        U: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { check: Some(Arc::new(move || Box::pin(check()))), ..self }
    }

    /// Answers `GET` of any other path by `more`, which receives path and query.
    #[must_use]
    pub fn beside<F, U>(self, more: F) -> Self
    where
        F: Fn(String) -> U + Send + Sync + 'static,
        U: Future<Output = Option<Answer>> + Send + 'static,
    {
        Self { more: Some(Arc::new(move |target| Box::pin(more(target)))), ..self }
    }

    /// Accepts only requests for these hosts. Needed on loopback, where nothing else keeps web pages out (DNS
    /// rebinding).
    #[must_use]
    pub fn only_for(self, hosts: AllowedHosts) -> Self {
        Self { hosts: Some(Arc::new(hosts)), ..self }
    }

    /// What a request asks for.
    fn target<B>(&self, request: &Request<B>) -> Target {
        let origin = request.headers().get(header::ORIGIN);
        if let Some(hosts) = &self.hosts
            && let Err(refused) = hosts.check_request(SocketFamily::Network, request, origin)
        {
            return Target::Refused(refused);
        }
        match self.shared.routes.find(request.method(), request.uri().path()) {
            Lookup::Match(found) => Target::Page(*found.value),
            Lookup::MethodNotAllowed(allow) => Target::OtherMethods(allow.clone()),
            Lookup::NotFound if self.more.is_some() && request.method() == Method::GET => {
                Target::More(request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned())
            }
            Lookup::NotFound => Target::Nothing,
        }
    }

    async fn answer(&self, target: Target) -> Response<Full<Bytes>> {
        let nothing = || refusal(Problem::not_found("nothing is here"));
        match target {
            Target::Page(page) => self.show(page).await,
            Target::Refused(refused) => refusal(refused.into()),
            Target::OtherMethods(allow) => {
                let methods = allow.to_str().unwrap_or_default().replace(',', ", ");
                let mut response = refusal(Problem::new(405, format!("the methods here are {methods}")));
                response.headers_mut().insert(header::ALLOW, allow);
                response
            }
            Target::More(target) => match &self.more {
                Some(more) => more(target).await.map_or_else(nothing, told),
                None => nothing(),
            },
            Target::Nothing => nothing(),
        }
    }

    async fn show(&self, page: Page) -> Response<Full<Bytes>> {
        let Shared { readiness, registry, .. } = &*self.shared;
        match (page, &self.check) {
            (Page::Alive, _) => told(health::alive()),
            (Page::Ready, Some(check)) if readiness.is_ready() => match check().await {
                Ok(()) => told(health::ready(readiness)),
                Err(why) => told(health::not_ready(why)),
            },
            (Page::Ready, _) => told(health::ready(readiness)),
            (Page::Metrics, _) => {
                let mut response = Response::new(Full::from(encode(registry)));
                let content_type = HeaderValue::from_static(CONTENT_TYPE);
                response.headers_mut().insert(header::CONTENT_TYPE, content_type);
                response
            }
        }
    }
}

/// The response for an answer. The listener adds the request's id to a problem that it finds in the extensions.
fn told(answer: Answer) -> Response<Full<Bytes>> {
    let fields = answer.headers();
    let mut response = Response::new(Full::from(answer.body.into_owned()));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in fields {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(problem) = answer.problem {
        response.extensions_mut().insert(problem);
    }
    response
}

/// The response for a problem, which no cache may keep.
fn refusal(problem: Problem) -> Response<Full<Bytes>> {
    told(Answer::problem(problem))
}

impl<B> Service<Request<B>> for Admin {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (admin, target) = (self.clone(), self.target(&request));
        Box::pin(async move { Ok(admin.answer(target).await) })
    }
}
