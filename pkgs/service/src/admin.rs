//! What an admin listener serves: `/healthz`, `/readyz` and `/metrics`, and what a service has beside them, as a `tower`
//! service.

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

/// Where it listens, if it does.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminArgs {
    /// Where health and metrics are answered: IP:PORT, unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<Address>,

    /// By TLS, where that is asked for.
    #[command(flatten)]
    pub tls: AdminTlsArgs,
}

/// Answers the requests of an admin listener; clones share it.
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

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    /// The process runs.
    Alive,
    /// It should be sent requests.
    Ready,
    /// What it has counted.
    Metrics,
}

/// What a request is for.
enum Target {
    Page(Page),
    /// Nothing: it came by a name that is not taken.
    Refused(Refused),
    /// A page that has only these methods.
    OtherMethods(HeaderValue),
    /// What the service itself may have there.
    More(String),
    /// Nothing that is here.
    Nothing,
}

/// Whether what a service stands on answers, or why not.
type Check = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync;

/// What a service answers beside all that, by path and query; nothing where it has no such page.
type More = dyn Fn(String) -> Pin<Box<dyn Future<Output = Option<Answer>> + Send>> + Send + Sync;

impl Admin {
    /// Of a service that is ready when it says so, with what `registry` shows.
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

    /// Has `/readyz` of a service that is ready ask `check` too, such as whether its database answers.
    #[must_use]
    pub fn checking<F, U>(self, check: F) -> Self
    where
        F: Fn() -> U + Send + Sync + 'static,
        U: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { check: Some(Arc::new(move || Box::pin(check()))), ..self }
    }

    /// Has `GET` of anything else ask the service, with path and query.
    #[must_use]
    pub fn beside<F, U>(self, more: F) -> Self
    where
        F: Fn(String) -> U + Send + Sync + 'static,
        U: Future<Output = Option<Answer>> + Send + 'static,
    {
        Self { more: Some(Arc::new(move |target| Box::pin(more(target)))), ..self }
    }

    /// Takes requests by these names only: for a listener on loopback, where web pages are kept out by nothing else (DNS
    /// rebinding).
    #[must_use]
    pub fn only_for(self, hosts: AllowedHosts) -> Self {
        Self { hosts: Some(Arc::new(hosts)), ..self }
    }

    /// What a request is for.
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

/// What is answered. A problem is told the request's id by the listener, which finds it in the extensions.
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

/// A problem, which no cache may keep.
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
