//! The service for the `listener` crate: visits with and without TLS, over HTTP/1.1, HTTP/2 and HTTP/3.
//!
//! Each worker thread has a [`WorkerContext`], made at its first visit.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::future::{Future, Ready, poll_fn, ready};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::Either;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode, request};
use http_body::Body as _;
use listener::body::Error;
use listener::{Body, Exchange, FastAnswer, FastPath, Peer, Protocol};
use request_head::Lines;
use service::shutdown::Shutdown;
use tokio::sync::OwnedMutexGuard;
use tokio::time::MissedTickBehavior;

use crate::cache::Entry;
use crate::store::{self, Comment, Reader, Remote, commented};

use super::host::Host;
use super::metrics::WorkerMetrics;
use super::remote::{self, Certainty};
use super::render::page::Refusal;
use super::render::response::{Responses, text};
use super::render::templates::{HeadEnd, Templates};
use super::render::{self, Render};
use super::routes::{Routes, Target};
use super::unlock::{Locked, LockedLink, MAX_FORM_BYTES};
use super::visit::{Outcome, UNREADABLE, Unread, Visitor};
use super::worker_context::WorkerContext;
use super::{Front, TICK};
use crate::front::request as plain;

/// How often a visit may look again for clicks of a limit, in case other visits use up what was granted.
const LOOKS: usize = 16;

/// A visit's turn to request clicks of a link, with the time when such a request last failed.
type Turn = OwnedMutexGuard<Option<Instant>>;

/// The field of an answer that may be outdated.
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

thread_local! {
    static CONTEXT: OnceCell<WorkerContext> = const { OnceCell::new() };
}

/// Settings for visitors over TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsPolicy {
    /// Whether visitors without TLS are redirected to TLS.
    pub redirects: bool,
    /// For how many seconds after a visit browsers may use only TLS (RFC 6797).
    pub hsts: Option<u32>,
    /// The port with TLS, for redirects to TLS.
    pub port: u16,
    /// The host in redirects to TLS, for requests that name none.
    pub host: Option<String>,
}

/// Answers visits on a `listener`'s workers. Clones share their state.
#[derive(Clone)]
pub struct HttpService(Arc<Shared>);

struct Shared {
    front: Arc<Front>,
    routes: Routes,
    responses: Responses,
    /// The same answers as HTTP/1.1 bytes.
    templates: Templates,
    secured: TlsPolicy,
    hsts: Option<HeaderValue>,
    /// The same field as an HTTP/1.1 line.
    hsts_line: String,
    /// The parts for each worker's context.
    parts: Mutex<Vec<(Arc<WorkerMetrics>, Reader)>>,
    /// The database, if reads have to wait for a server.
    remote: Option<Remote>,
}

/// An answer that is ready, or one that waits for a form or for the database.
type Answering = Either<Ready<Answered>, Pin<Box<dyn Future<Output = Answered> + Send>>>;

type Answered = Result<Response<Body>, Infallible>;

impl HttpService {
    /// Makes the service for this many workers.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn new(front: Arc<Front>, workers: usize, secured: TlsPolicy) -> Result<Self, store::Error> {
        let part = |index| Ok((front.metrics.worker(index), front.store.reader()?));
        let parts = (0..workers).map(part).collect::<Result<_, store::Error>>()?;
        let hsts = secured.hsts.map(|seconds| format!("max-age={seconds}"));
        Ok(Self(Arc::new(Shared {
            routes: Routes::new(),
            responses: Responses::new(&front.settings),
            templates: Templates::new(&front.settings),
            hsts_line: hsts
                .as_ref()
                .map_or_else(String::new, |value| format!("strict-transport-security: {value}\r\n")),
            hsts: hsts.as_deref().map(text),
            secured,
            parts: Mutex::new(parts),
            remote: front.store.remote(),
            front,
        })))
    }

    /// The target of a request; `None` if the path has only other methods.
    fn target<'r>(&self, request: &'r request::Parts) -> Option<Target<'r>> {
        self.0.routes.find(&request.method, request.uri.path())
    }

    /// The visitor's address, if it is needed.
    fn address(&self, address: impl FnOnce() -> Option<IpAddr>) -> Option<IpAddr> {
        self.0.front.geoip.as_ref().and_then(|_| address())
    }

    /// Passes this thread's context to `what`.
    fn with<R>(&self, what: impl FnOnce(&WorkerContext) -> R) -> R {
        CONTEXT.with(|context| what(context.get_or_init(|| self.open())))
    }

    /// Makes this thread's context, and starts the task that maintains it.
    fn open(&self) -> WorkerContext {
        let mut parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let (metrics, reader) = parts.pop().expect("there are parts for each worker");
        tokio::spawn(keep(Arc::clone(&self.0.front)));
        WorkerContext::new(Arc::clone(&self.0.front), metrics, reader)
    }

    /// Decides and counts a visit, unless it has to wait for the database. `verified` is the hash that the posted
    /// password matched, and `known` the link's entry, if it was already read.
    fn look(
        &self,
        request: &request::Parts,
        verified: Option<&str>,
        known: Option<&Entry>,
    ) -> Result<Response<Body>, Unread> {
        let (asked, target) = (asked(request), self.target(request).unwrap_or(Target::Nothing));
        let plain::Request { head, referrer, agent, .. } = asked;
        let address = self.address(|| request.extensions.get::<Peer>()?.client(&request.headers));
        let visitor = Visitor { host: host(request), head, referrer, agent, address, verified };
        self.with(|context| {
            context.look(&target, &visitor, known, |outcome| match outcome {
                Outcome::Unread(unread) => Err(unread),
                outcome => Ok(render::render(&self.0.responses, &asked, verified.is_some(), outcome)),
            })
        })
    }

    /// Decides and counts a visit.
    async fn visit(&self, request: &request::Parts, verified: Option<&str>) -> Response<Body> {
        match self.look(request, verified, None) {
            Ok(response) => response,
            Err(needed) => self.wait(request, verified, needed).await,
        }
    }

    /// Answers the visit after waiting for what it needs.
    async fn wait(&self, request: &request::Parts, verified: Option<&str>, needed: Unread) -> Response<Body> {
        let refused = |refusal| render::deny(&self.0.responses, &asked(request), refusal);
        let mut turn = None;
        if let Unread::Clicks(link) = needed {
            turn = match self.turn(link).await {
                Ok(turn) => Some(turn),
                Err(refusal) => return refused(refusal),
            };
            // Often whoever had the turn before has the answer, so the link is not read once more.
            if let Ok(response) = self.look(request, verified, None) {
                return response;
            }
        }
        let (entry, certainty) = match self.find(request).await {
            Ok(found) => found,
            Err(refusal) => {
                if let Some(turn) = turn.as_mut().filter(|_| refusal == Refusal::Unavailable) {
                    **turn = Some(Instant::now());
                }
                return refused(refusal);
            }
        };
        // While the link was read, other visits may have got clicks, or learned that none are left.
        let mut unread = None;
        // Other visits may use up what was granted before this one gets it.
        for _ in 0..=LOOKS {
            // If none are left in the database, this node may still have some.
            if let Some(Unread::Clicks(link)) = unread
                && let Err(refusal) = self.get_clicks(link, &mut turn).await
            {
                return refused(refusal);
            }
            match self.look(request, verified, Some(&entry)) {
                Ok(mut response) => {
                    if let Some(told) = told(certainty) {
                        response.headers_mut().insert(CACHE_STATUS, told);
                    }
                    return response;
                }
                Err(needed) => unread = Some(needed),
            }
        }
        refused(Refusal::Unavailable)
    }

    /// Reads the entry of the requested link from a database server.
    async fn find(&self, request: &request::Parts) -> Result<(Entry, Certainty), Refusal> {
        let front = &self.0.front;
        let domain = self.with(|context| {
            context.metrics.misses.add(1);
            context.domain(host(request))
        });
        let (Some(domain), Some(store), Some(Target::Link(code))) =
            (domain, &self.0.remote, self.target(request))
        else {
            return Err(Refusal::Missing);
        };
        remote::find(&front.cache, store, domain, &code).await.map_err(|error| unread(&error))
    }

    /// Gets clicks of a limit for a visit that found none, and has to look again then. First it waits for its turn,
    /// since meanwhile others may get some, or learn that none are left. With its turn, it asks the database.
    async fn get_clicks(&self, link: i64, turn: &mut Option<Turn>) -> Result<(), Refusal> {
        match turn {
            None => {
                *turn = Some(self.turn(link).await?);
                Ok(())
            }
            Some(turn) => {
                let leased = self.lease(link).await;
                if leased.is_err() {
                    **turn = Some(Instant::now());
                }
                leased
            }
        }
    }

    /// Waits for this visit's turn to request clicks of a link. One visit at a time does that, so a link with many
    /// visitors takes one place among those who wait for the database.
    ///
    /// # Errors
    /// When a request failed meanwhile: otherwise each visit would wait for the timeouts of all before it.
    async fn turn(&self, link: i64) -> Result<Turn, Refusal> {
        let begun = Instant::now();
        let turn = self.0.front.cache.turns(link).lock_owned().await;
        if turn.is_some_and(|failed| failed >= begun) {
            return Err(Refusal::Unavailable);
        }
        Ok(turn)
    }

    /// Requests clicks of a limit.
    async fn lease(&self, link: i64) -> Result<(), Refusal> {
        let Some(store) = self.0.remote.clone() else { return Err(Refusal::Unavailable) };
        let front = Arc::clone(&self.0.front);
        // A visitor may leave before the database answers. What it grants is there for others all the same.
        let asked = tokio::spawn(async move { remote::lease(&front.cache, &store, link).await });
        asked.await.map_err(|_| Refusal::Unavailable)?.map_err(|error| unread(&error))
    }

    /// The requested link, if it requires a password.
    async fn locked(&self, request: &request::Parts) -> Result<LockedLink, Refusal> {
        let (entry, _) = self.find(request).await?;
        let target = self.target(request).ok_or(Refusal::Method)?;
        let (mut unread, mut turn) = (None, None);
        for _ in 0..=LOOKS {
            if let Some(Unread::Clicks(link)) = unread {
                self.get_clicks(link, &mut turn).await?;
            }
            match self.with(|context| context.locked(&target, host(request), Some(&entry)))? {
                Ok(locked) => return Ok(locked),
                Err(needed) => unread = Some(needed),
            }
        }
        Err(Refusal::Unavailable)
    }

    /// Answers a password, once the form has arrived.
    async fn unlock(self, request: request::Parts, locked: LockedLink, body: Body) -> Response<Body> {
        let client = request.extensions.get().and_then(|peer: &Peer| peer.client(&request.headers));
        // Visitors through a Unix socket cannot be distinguished, so they share their attempts.
        let address = client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let unlocked = match form(body).await {
            Ok(form) => locked.unlock(&self.0.front, &form, address).await,
            Err(refusal) => Err(refusal.into()),
        };
        let Locked { refusal, retry_after } = match unlocked {
            Ok(hash) => return self.visit(&request, Some(hash.as_str())).await,
            Err(locked) => locked,
        };
        let mut response = render::deny(&self.0.responses, &asked(&request), refusal);
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }

    /// The SQL comment for the statements of a visit.
    fn trace(&self, request: &request::Parts) -> Option<Comment> {
        self.0.front.store.trace(&request.extensions, &request.headers)
    }

    /// Redirects a visitor without TLS to the same place with TLS.
    fn to_https(&self, request: &request::Parts) -> Response<Body> {
        let location = match (self.host(request), request.uri.path_and_query()) {
            // `OPTIONS *` has no path to redirect to.
            (Some(host), Some(target)) if target.as_str().starts_with('/') => match self.0.secured.port {
                443 => HeaderValue::try_from(format!("https://{host}{target}")),
                port => HeaderValue::try_from(format!("https://{host}:{port}{target}")),
            }
            .ok(),
            _ => None,
        };
        let Some(location) = location else {
            let plain::Request { html, head, .. } = asked(request);
            return self.0.responses.refuse(Refusal::Malformed, html, head);
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
        let fields = response.headers_mut();
        fields.insert(header::LOCATION, location);
        // The answer is not cached, since TLS may not always be available there. Only HSTS promises that.
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        response
    }

    /// The host of the request, without its port.
    fn host(&self, request: &request::Parts) -> Option<String> {
        let named =
            request.headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let authority = request.uri.authority().cloned().or(named);
        let host = authority.map(|authority| authority.host().to_owned()).filter(|host| !host.is_empty());
        host.or_else(|| self.0.secured.host.clone())
    }

    /// Counts an answer, and adds the fields for TLS.
    fn finish(&self, mut response: Response<Body>, secure: bool) -> Answered {
        self.with(|context| context.metrics.answered(response.status().as_u16()));
        if let Some(hsts) = self.0.hsts.as_ref().filter(|_| secure) {
            response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        Ok(response)
    }
}

impl tower_service::Service<Request<Body>> for HttpService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let (request, body) = request.into_parts();
        let secure = request.extensions.get().is_some_and(is_secure);
        let response = match request.method {
            _ if !secure && self.0.secured.redirects => self.to_https(&request),
            Method::GET | Method::HEAD if body.is_end_stream() => match self.look(&request, None, None) {
                Ok(response) => response,
                Err(needed) => {
                    let (this, trace) = (self.clone(), self.trace(&request));
                    let answered = async move {
                        let response = this.wait(&request, None, needed).await;
                        this.finish(response, secure)
                    };
                    return Either::Right(Box::pin(commented(trace, answered)));
                }
            },
            // A visit has no use for a body, but some HTTP/2 clients miss an answer that comes before the end of their
            // body.
            Method::GET | Method::HEAD => {
                let (this, trace) = (self.clone(), self.trace(&request));
                let answered = async move {
                    let response = match form(body).await {
                        Ok(_) | Err(Refusal::Body) => this.visit(&request, None).await,
                        Err(refusal) => render::deny(&this.0.responses, &asked(&request), refusal),
                    };
                    this.finish(response, secure)
                };
                return Either::Right(Box::pin(commented(trace, answered)));
            }
            Method::POST => {
                let locked = self
                    .target(&request)
                    .ok_or(Refusal::Method)
                    .and_then(|target| self.with(|context| context.locked(&target, host(&request), None)));
                match locked {
                    Ok(locked) => {
                        let (this, trace) = (self.clone(), self.trace(&request));
                        let answered = async move {
                            let locked = match locked {
                                Ok(locked) => Ok(locked),
                                Err(_) => this.locked(&request).await,
                            };
                            let response = match locked {
                                Ok(locked) => this.clone().unlock(request, locked, body).await,
                                Err(refusal) => render::deny(&this.0.responses, &asked(&request), refusal),
                            };
                            this.finish(response, secure)
                        };
                        return Either::Right(Box::pin(commented(trace, answered)));
                    }
                    Err(refusal) => render::deny(&self.0.responses, &asked(&request), refusal),
                }
            }
            _ => render::deny(&self.0.responses, &asked(&request), Refusal::Method),
        };
        Either::Left(ready(self.finish(response, secure)))
    }
}

/// Answers plain visits without making a request object, for HTTP/1.1 and, in the same form, for HTTP/2 and HTTP/3.
impl FastPath for HttpService {
    fn answer(
        &mut self,
        head: &Lines<'_, '_>,
        exchange: &Exchange<'_>,
        out: &mut Vec<u8>,
    ) -> Option<FastAnswer> {
        let secure = is_secure(exchange.peer);
        if !secure && self.0.secured.redirects {
            return None;
        }
        let request = plain::plain(head).ok()??;
        let connection = exchange.connection(!request.close);
        let plain::Request { head: only_head, path, referrer, agent, .. } = request;
        // The table lists GET for this path, and HEAD is allowed wherever GET is.
        let target = self.0.routes.find(&Method::GET, path)?;
        let address = self.address(|| exchange.client(head));
        let host = Host::Lines(head);
        let visitor = Visitor { host, head: only_head, referrer, agent, address, verified: None };
        let lines = if secure { self.0.hsts_line.as_bytes() } else { b"" };
        let head_end = HeadEnd { lines, exchange, head, connection };
        self.with(|context| {
            let status = context.visit(&target, &visitor, |outcome| match outcome {
                // A visit that has to wait needs a request object.
                Outcome::Unread(_) => None,
                outcome => Some(self.0.templates.write(out, head_end, &request, outcome)),
            })?;
            context.metrics.answered(status);
            Some(connection.into())
        })
    }
}

/// Updates this thread's clock, and passes on its last clicks when its runtime ends.
async fn keep(front: Arc<Front>) {
    struct Last;

    impl Drop for Last {
        fn drop(&mut self) {
            // No visit runs any more, so the counter is not borrowed. If a panic ended the thread, its last clicks are
            // lost.
            let _ = CONTEXT.try_with(|context| context.get().map(WorkerContext::enter_clicks));
        }
    }

    let _all = ShutdownOnPanic(&front.shutdown);
    let _last = Last;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        CONTEXT.with(|context| context.get().map(WorkerContext::tick));
    }
}

/// Shuts the service down if a worker's clock panics. Otherwise the service would answer only some of its clients, for
/// an unknown time.
struct ShutdownOnPanic<'f>(&'f Shutdown);

impl Drop for ShutdownOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a worker ended: so does the service");
            self.0.fail();
        }
    }
}

/// The field of an answer that was cached before the database became unreachable, with the number of seconds that it
/// may be old (RFC 9211, section 2.5), or of an answer that comes from a standby.
fn told(certainty: Certainty) -> Option<HeaderValue> {
    let text = match certainty {
        Certainty::Sure => return None,
        Certainty::Cached(age) => {
            format!("linerate-links; hit; ttl=-{}; detail=database-away", age.as_secs().max(1))
        }
        Certainty::Standby => "linerate-links; fwd=miss; detail=standby".to_owned(),
    };
    HeaderValue::from_str(&text).ok()
}

/// The refusal if the database does not answer.
fn unread(error: &store::Error) -> Refusal {
    if let Some(times) = UNREADABLE.due() {
        tracing::warn!(%error, times, "cannot read a link");
    }
    Refusal::Unavailable
}

/// Whether a visitor used TLS. HTTP/3 always uses TLS.
fn is_secure(peer: &Peer) -> bool {
    peer.tls.is_some() || peer.protocol == Protocol::Http3
}

/// A request in the form of the fast path.
fn asked(request: &request::Parts) -> plain::Request<'_> {
    let last = |name: HeaderName| request.headers.get_all(name).iter().next_back().map(HeaderValue::as_bytes);
    plain::Request {
        head: request.method == Method::HEAD,
        path: request.uri.path(),
        query: request.uri.query(),
        referrer: last(header::REFERER),
        agent: last(header::USER_AGENT),
        html: last(header::ACCEPT).is_some_and(plain::names_html),
        close: false,
    }
}

/// The requested host: `:authority` in HTTP/2 and 3, or the host of a target in absolute form.
fn host(request: &request::Parts) -> Host<'_> {
    let named = || request.headers.get(header::HOST).map(HeaderValue::as_bytes);
    let authority = request.uri.authority().map(|authority| authority.as_str().as_bytes());
    authority.or_else(named).map_or(Host::None, Host::Authority)
}

/// Reads a form, with one deadline for all of it. A form that is too long is still read to its end, since HTTP/2
/// clients miss an answer that comes while they send. It cannot be much longer
/// ([`MAX_BODY_BYTES`](super::MAX_BODY_BYTES)).
async fn form(mut body: Body) -> Result<Vec<u8>, Refusal> {
    let mut form = Vec::new();
    let mut length = 0;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame.map_err(refusal)?.into_data() else { continue };
        length += data.len();
        if length <= MAX_FORM_BYTES {
            form.extend_from_slice(&data);
        }
    }
    if length > MAX_FORM_BYTES { Err(Refusal::Body) } else { Ok(form) }
}

/// The refusal for an incomplete form.
fn refusal(error: Error) -> Refusal {
    match error {
        Error::TooLarge => Refusal::Body,
        Error::Idle(_) | Error::Slow(_) => Refusal::Timeout,
        Error::Incomplete | Error::Malformed(_) | Error::Transport(_) => Refusal::Malformed,
    }
}
