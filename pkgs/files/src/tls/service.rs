//! The same files over TLS: HTTP/1.1, HTTP/2 and HTTP/3 arrive through `listener`, whose workers call this service.
//! HTTP/1.1 connections that the kernel can encrypt continue in [`shared`](crate::worker::shared) instead.
//!
//! Each thread has a [`WorkerContext`] like a plain worker, and makes answers in the same way. Only bodies differ,
//! since encryption needs their bytes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use listener::Peer;
use service::access_log::{RequestContext, RequestSummary};
use service::panics;
use service::request_id::RequestId;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use tower_service::Service;

use super::body::Body;
use crate::http::head::{self, Fields, Method, RawFields, Values};
use crate::http::path;
use crate::metrics::ListenerKind;
use crate::response::built::{BuiltResponse, Payload};
use crate::response::pending::{MAX_PENDING, PendingWork, Resumed, WorkOutcome};
use crate::site::Site;
use crate::site::errors::HttpError;
use crate::site::root::Error;
use crate::threads::interest::Waiter;
use crate::worker::context::{TICK, WorkerContext, site_of};
use crate::worker::shared::SharedState;

/// The most headers in an answer, including those from rules.
const MAX_FIELDS: usize = 128;

/// Answers requests with the files of a [`SharedState`].
#[derive(Clone, Debug)]
pub struct TlsService(Arc<SharedState>);

/// The result of what a request waited for and the site that it is about, how often the request has waited, and since
/// when.
type Waited = ((WorkOutcome, Arc<Site>), u8, Instant);

thread_local! {
    static CONTEXT: RefCell<Option<WorkerContext>> = const { RefCell::new(None) };
    /// Heads of answers, before they are taken apart.
    static OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An answer, either at once or after asking the disk.
// The large variant is the common one.
#[allow(clippy::large_enum_variant)]
pub enum ResponseFuture {
    /// It is ready.
    Now(Ready<Response<Body>>),
    /// It is being worked on.
    Later(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

impl TlsService {
    /// A service for the site of this listener.
    pub fn new(shared: Arc<SharedState>) -> Self {
        Self(shared)
    }

    /// Calls `then` with this thread's context, if there already is one.
    pub(super) fn with_open<T>(then: impl FnOnce(&mut WorkerContext) -> T) -> Option<T> {
        CONTEXT.with_borrow_mut(|context| context.as_mut().map(then))
    }

    /// Calls `then` with this thread's context.
    fn with<T>(&self, then: impl FnOnce(&mut WorkerContext) -> T) -> T {
        CONTEXT.with_borrow_mut(|context| then(context.get_or_insert_with(|| open(&self.0))))
    }

    /// Makes an answer from what this thread has. `resumed` is what the request keeps of earlier results.
    fn answer<B>(
        &self,
        request: &Request<B>,
        outcome: Option<Waited>,
        resumed: &mut Resumed,
    ) -> Result<Response<Body>, (PendingWork, Arc<Site>)> {
        let make = || {
            self.with(|context| {
                OUT.with_borrow_mut(|out| {
                    out.clear();
                    answer(context, request, outcome, resumed, out)
                })
            })
        };
        panics::catch(make).unwrap_or_else(|panic| {
            let line = RequestSummary::of_head(request.method(), request.uri(), request.headers()).line();
            panic.log("request", &line.unwrap_or_default());
            Ok(failed(&asked(request)))
        })
    }
}

/// Makes this thread's context, and starts the task that maintains it.
fn open(shared: &Arc<SharedState>) -> WorkerContext {
    // Encrypted bytes are copied anyway, so no copies are kept.
    let metrics = shared.metrics.worker(ListenerKind::Tls);
    let context = WorkerContext::new(shared, Arc::clone(&metrics), metrics, 0);
    let changes = context.watcher().and_then(|watcher| watcher.wait().ok());
    tokio::spawn(keep(changes));
    context
}

/// Keeps this thread's context up to date with the time and with changes below the root.
async fn keep(changes: Option<AsyncFd<OwnedFd>>) {
    fn with(what: impl FnOnce(&mut WorkerContext)) {
        if let Err(panic) = panics::catch(|| TlsService::with_open(what)) {
            panic.log("job", "keeping up with changes");
            TlsService::with_open(WorkerContext::reset);
        }
    }
    let changed = async || match &changes {
        Some(changes) => changes.readable().await.ok(),
        None => std::future::pending().await,
    };
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Changes first, so that as few requests as possible get outdated answers.
            biased;
            changed = changed() => {
                with(WorkerContext::watched);
                // Everything was read, so the next change makes it ready again.
                if let Some(mut ready) = changed {
                    ready.clear_ready();
                }
            }
            _ = ticks.tick() => with(|context| {
                context.tick();
                context.shared.memory_copies.tidy();
                context.refresh();
            }),
        }
    }
}

/// The answer after a panic. Resets what the panic may have left half changed.
#[cold]
fn failed(asked: &head::Request<'_>) -> Response<Body> {
    CONTEXT.with_borrow_mut(|context| {
        let Some(context) = context else { return gone() };
        context.reset();
        let mut out = Vec::new();
        let site = Rc::clone(&context.site);
        let answer = context.builder(&site).refuse(HttpError::Failed, asked, "", &mut out);
        context.counts(true).answered(answer.status);
        response(&out, &answer, None, asked)
    })
}

/// The request's id, if it is logged or came from a trusted proxy.
fn id<B>(context: &WorkerContext, peer: Option<&Peer>, request: &Request<B>) -> Option<RequestId> {
    let context = context.log.as_ref().and_then(|_| request.extensions().get::<RequestContext>());
    let given = || peer?.proxies.as_ref().and_then(|_| RequestId::of_fields(request.headers()));
    context.map(|context| context.id().clone()).or_else(given)
}

/// The answer if there isn't even a context to make answers from.
fn gone() -> Response<Body> {
    let mut failed = Response::new(Body::empty());
    *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    failed
}

fn answer<B>(
    context: &mut WorkerContext,
    request: &Request<B>,
    outcome: Option<Waited>,
    resumed: &mut Resumed,
    out: &mut Vec<u8>,
) -> Result<Response<Body>, (PendingWork, Arc<Site>)> {
    let asked = asked(request);
    let peer = request.extensions().get::<Peer>();
    let rate = peer.and_then(|peer| peer.address_rate.as_ref());
    let by_proxy = peer.filter(|peer| peer.proxies.is_some()).and_then(|peer| peer.client(request.headers()));
    let first = Rc::clone(&context.site);
    let known = site_of(&first, &asked);
    let is_known = known.is_some();
    let site = known.unwrap_or(&first);
    let may_ask = outcome.is_some() || context.shared.may_ask(rate, by_proxy);
    let id = id(context, peer, request);
    let mut builder = context.builder(site);
    builder.id.clone_from(&id);
    builder.client = peer.and_then(|peer| peer.client(request.headers()));
    let mut answer = if may_ask && !is_known {
        builder.refuse(HttpError::Misdirected, &asked, "", out)
    } else if may_ask {
        let (outcome, waits, since) = match outcome {
            None => (None, 0, None),
            Some((outcome, waits, since)) => (Some(outcome), waits, Some(since)),
        };
        builder.waiting_since = since;
        builder.resumed = std::mem::take(resumed);
        match builder.answer(&asked, outcome, out) {
            Ok(answer) => answer,
            Err(wait) if waits < MAX_PENDING => {
                *resumed = std::mem::take(&mut builder.resumed);
                return Err((wait, Arc::clone(site)));
            }
            Err(_) => builder.refuse(HttpError::Exhausted, &asked, "", out),
        }
    } else {
        builder.refuse(HttpError::TooMany, &asked, "", out)
    };
    context.prefetch(site, &answer.payload);
    let body = match std::mem::replace(&mut answer.payload, Payload::None) {
        Payload::None => None,
        Payload::File { file, range, .. } => Some(Body::file(context, &file, range)),
        Payload::Multipart(parts) => Some(Body::parts(context, *parts)),
        Payload::Stream(source) => {
            let body = Body::stream(context, source);
            if body.is_none() {
                out.clear();
                let mut builder = context.builder(site);
                builder.id = id;
                answer = builder.refuse(HttpError::Exhausted, &asked, "", out);
            }
            body
        }
    };
    context.counts(true).answered(answer.status);
    Ok(response(out, &answer, body, &asked))
}

/// A request as the plain listener would read it. It counts as old, since this service doesn't write chunks itself.
fn asked<B>(request: &Request<B>) -> head::Request<'_> {
    asked_of(request.method(), request.uri(), request.headers())
}

fn asked_of<'r>(method: &'r http::Method, uri: &'r Uri, all: &'r HeaderMap) -> head::Request<'r> {
    let name = method.as_str();
    let method = match *method {
        http::Method::GET => Method::Get,
        http::Method::HEAD => Method::Head,
        http::Method::OPTIONS => Method::Options,
        _ => Method::Other,
    };
    let values =
        |name: HeaderName| -> Values<'_> { all.get_all(name).iter().map(HeaderValue::as_bytes).collect() };
    // A header that is repeated but mustn't be counts as absent: no grammar allows the empty value.
    let once = |name: HeaderName| -> Option<&[u8]> {
        let mut lines = all.get_all(name).iter();
        let first = lines.next()?;
        Some(if lines.next().is_some() { b"" } else { first.as_bytes() })
    };
    let path = uri.path();
    head::Request {
        method,
        name,
        path: if path.is_empty() { "/" } else { path },
        query: uri.query(),
        old: true,
        keep: true,
        others: RawFields::Map { authority: uri.authority().map(http::uri::Authority::as_str), fields: all },
        fields: Fields {
            range: once(header::RANGE),
            if_range: once(header::IF_RANGE),
            if_match: values(header::IF_MATCH),
            if_none_match: values(header::IF_NONE_MATCH),
            if_modified_since: once(header::IF_MODIFIED_SINCE),
            if_unmodified_since: once(header::IF_UNMODIFIED_SINCE),
            accept_encoding: values(header::ACCEPT_ENCODING),
            accept: all.get(header::ACCEPT).map(HeaderValue::as_bytes),
            origin: all.get(header::ORIGIN).map(HeaderValue::as_bytes),
            preflight: all.get(header::ACCESS_CONTROL_REQUEST_METHOD).map(HeaderValue::as_bytes),
            referrer: all.get(header::REFERER).map(HeaderValue::as_bytes),
        },
    }
}

/// The answer with the head in `out`, and with `body` or what follows the head there.
fn response(
    out: &[u8],
    answer: &BuiltResponse,
    body: Option<Body>,
    asked: &head::Request<'_>,
) -> Response<Body> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = parsed.parse(out) else {
        tracing::error!("the head of an answer has more than {MAX_FIELDS} fields");
        return gone();
    };
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value)) else { continue };
        // These belong to the connection, and the listener sends them.
        if name != header::CONNECTION && name != header::DATE {
            headers.append(name, value);
        }
    }
    let body = body.unwrap_or_else(|| match asked.method {
        // The headers describe what a GET would have.
        Method::Head => Body::empty(),
        _ => Body::whole(out[length..].to_vec().into()),
    });
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

impl listener::Refusals for TlsService {
    fn refused(&self, status: u16) {
        self.with(|context| context.counts(true).answered(status));
    }
}

impl listener::EarlyHints for TlsService {
    /// The early hints for a request. Only navigation gets them: browsers that declare it know what an interim response
    /// is.
    fn hints(&self, method: &http::Method, uri: &Uri, fields: &HeaderMap) -> Option<HeaderMap> {
        if *method != http::Method::GET || fields.get("sec-fetch-mode").is_none_or(|mode| mode != "navigate")
        {
            return None;
        }
        let find = || {
            self.with(|context| {
                if !context.hints_early() {
                    return None;
                }
                let request = asked_of(method, uri, fields);
                let site = site_of(&context.site, &request)?;
                let path = path::decode(request.path, site.hidden).ok()?;
                let links = site.early_hints(&path).iter();
                let links: Vec<_> = links.filter_map(|link| HeaderValue::from_str(link).ok()).collect();
                (!links.is_empty()).then(|| links.into_iter().map(|link| (header::LINK, link)).collect())
            })
        };
        panics::catch(find).unwrap_or_else(|panic| {
            panic.log("request", &RequestSummary::of_head(method, uri, fields).line().unwrap_or_default());
            None
        })
    }
}

impl<B: Send + 'static> Service<Request<B>> for TlsService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let (mut wait, mut site) = match self.answer(&request, None, &mut Resumed::default()) {
            Ok(response) => return ResponseFuture::Now(ready(response)),
            Err(wait) => wait,
        };
        // Its body isn't used, and can't be shared between threads.
        let request = request.map(drop);
        let this = self.clone();
        let since = Instant::now();
        ResponseFuture::Later(Box::pin(async move {
            // Dropped with this future, when the client resets its stream or leaves.
            let waiter = Waiter::default();
            let mut resumed = Resumed::default();
            for waits in 1.. {
                let (give, waiting) = oneshot::channel();
                // The receiver may be gone.
                let done = move |outcome| drop(give.send(outcome));
                this.0.resolve(wait, Arc::clone(&site), waiter.interest(), done);
                let outcome =
                    waiting.await.unwrap_or_else(|_| WorkOutcome::Found(Vec::new(), Err(Error::Exhausted)));
                match this.answer(&request, Some(((outcome, site), waits, since)), &mut resumed) {
                    Ok(response) => return response,
                    Err(next) => (wait, site) = next,
                }
            }
            unreachable!("nobody waits more often than MAX_PENDING")
        }))
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(answer) => Pin::new(answer).poll(context).map(Ok),
            Self::Later(answer) => answer.as_mut().poll(context).map(Ok),
        }
    }
}
