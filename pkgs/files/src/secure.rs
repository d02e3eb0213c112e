//! The same files over TLS: HTTP/1.1, HTTP/2 and HTTP/3 come through `listener`, whose workers call this service.
//! Connections of HTTP/1.1 that the kernel can encrypt go on to [`front`](crate::front) instead.
//!
//! Each thread has a [`Desk`] as a plain worker has, and answers are made from it in the same way; only the bodies
//! differ, for encryption has to see their bytes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use listener::Peer;
use service::access_log::{Asked, RequestContext};
use service::panics;
use service::request_id::RequestId;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use tower_service::Service;

use crate::answer::{Answer, Payload};
use crate::body::Body;
use crate::desk::{Desk, TICK};
use crate::front::Front;
use crate::front::limits::Guest;
use crate::http::head::{self, Fields, Method, Others, Values};
use crate::metrics::Side;
use crate::site::Site;
use crate::site::refusal::Refusal;
use crate::site::root::Error;
use crate::wait::{MAX_WAITS, Wait, Waited};

/// The most fields of an answer, those of rules included.
const MAX_FIELDS: usize = 128;

/// Answers requests with the files of a [`Front`].
#[derive(Clone, Debug)]
pub struct Secure(Arc<Front>);

thread_local! {
    static DESK: RefCell<Option<Desk>> = const { RefCell::new(None) };
    /// Heads of answers, before they are taken apart.
    static OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An answer at once, or once the disk was asked.
// The large one is the common one.
#[allow(clippy::large_enum_variant)]
pub enum Answering {
    /// It is there.
    Now(Ready<Response<Body>>),
    /// It is being found out.
    Later(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

impl Secure {
    /// Of this front's site.
    pub fn new(front: Arc<Front>) -> Self {
        Self(front)
    }

    /// Makes an answer from what this thread has; `waited` is what came of what it had to wait for, the last of so many
    /// times.
    fn answer<B>(
        &self,
        request: &Request<B>,
        waited: Option<(Waited, u8)>,
    ) -> Result<Response<Body>, (Wait, Arc<Site>)> {
        let make = || {
            DESK.with_borrow_mut(|desk| {
                let desk = desk.get_or_insert_with(|| open(&self.0));
                OUT.with_borrow_mut(|out| {
                    out.clear();
                    answer(desk, request, waited, out)
                })
            })
        };
        panics::catch(make).unwrap_or_else(|panic| {
            let line = Asked::of_head(request.method(), request.uri(), request.headers()).line();
            panic.log("request", &line.unwrap_or_default());
            Ok(failed(&asked(request)))
        })
    }
}

/// Makes the desk of this thread, and has it kept in order.
fn open(front: &Arc<Front>) -> Desk {
    // Bytes that are encrypted are copied all the same: none are kept.
    let metrics = front.metrics.worker(Side::Tls);
    let desk = Desk::new(front, Arc::clone(&metrics), metrics, 0);
    let changes = desk.watcher().and_then(|watcher| watcher.wait().ok());
    tokio::spawn(keep(changes));
    desk
}

/// Keeps the desk of this thread up to the time, and to what changes below the root.
async fn keep(changes: Option<AsyncFd<OwnedFd>>) {
    fn with(what: impl FnOnce(&mut Desk)) {
        if let Err(panic) = panics::catch(|| DESK.with_borrow_mut(|desk| desk.as_mut().map(what))) {
            panic.log("job", "keeping up with changes");
            DESK.with_borrow_mut(|desk| desk.as_mut().map(Desk::reset));
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
            // Changes first, so that as few requests as can be are answered with what was before.
            biased;
            changed = changed() => {
                with(Desk::watched);
                // All was read, so that the next change makes it ready anew.
                if let Some(mut ready) = changed {
                    ready.clear_ready();
                }
            }
            _ = ticks.tick() => with(|desk| {
                desk.tick();
                desk.front.loaded.tidy();
                desk.refresh();
            }),
        }
    }
}

/// The answer where one panicked. What it may have left half changed begins anew.
#[cold]
fn failed(asked: &head::Request<'_>) -> Response<Body> {
    DESK.with_borrow_mut(|desk| {
        let Some(desk) = desk else { return gone() };
        desk.reset();
        let mut out = Vec::new();
        let site = Arc::clone(&desk.site);
        let answer = desk.maker(&site).refuse(Refusal::Failed, asked, "", &mut out);
        desk.counts(true).answered(answer.status);
        response(&out, &answer, None, asked)
    })
}

/// The request's id, where it is logged or a trusted proxy has told one.
fn id<B>(desk: &Desk, peer: Option<&Peer>, request: &Request<B>) -> Option<RequestId> {
    let context = desk.log.as_ref().and_then(|_| request.extensions().get::<RequestContext>());
    let given = || peer?.proxies.as_ref().and_then(|_| RequestId::of_fields(request.headers()));
    context.map(|context| context.id().clone()).or_else(given)
}

/// The answer where not even that is there which answers are made from.
fn gone() -> Response<Body> {
    let mut failed = Response::new(Body::empty());
    *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    failed
}

fn answer<B>(
    desk: &mut Desk,
    request: &Request<B>,
    waited: Option<(Waited, u8)>,
    out: &mut Vec<u8>,
) -> Result<Response<Body>, (Wait, Arc<Site>)> {
    let asked = asked(request);
    let peer = request.extensions().get::<Peer>();
    let guest = peer.and_then(|peer| peer.guest.as_ref()?.downcast_ref::<Guest>());
    let by_proxy = peer.filter(|peer| peer.proxies.is_some()).and_then(|peer| peer.client(request.headers()));
    let known = desk.site_of(&asked);
    let is_known = known.is_some();
    let site = known.unwrap_or_else(|| Arc::clone(&desk.site));
    let may_ask = waited.is_some() || desk.front.may_ask(guest, by_proxy);
    let id = id(desk, peer, request);
    let mut maker = desk.maker(&site);
    maker.id.clone_from(&id);
    maker.client = peer.and_then(|peer| peer.client(request.headers()));
    let mut answer = if may_ask && !is_known {
        maker.refuse(Refusal::Misdirected, &asked, "", out)
    } else if may_ask {
        let (waited, waits) = waited.map_or((None, 0), |(waited, waits)| (Some(waited), waits));
        match maker.answer(&asked, waited, out) {
            Ok(answer) => answer,
            Err(wait) if waits < MAX_WAITS => return Err((wait, site)),
            Err(_) => maker.refuse(Refusal::Exhausted, &asked, "", out),
        }
    } else {
        maker.refuse(Refusal::TooMany, &asked, "", out)
    };
    desk.prefetch(&site, &answer.payload);
    let body = match std::mem::replace(&mut answer.payload, Payload::None) {
        Payload::None => None,
        Payload::File { file, range, .. } => Some(Body::file(desk, &file, range)),
        Payload::Parts(parts) => Some(Body::parts(desk, *parts)),
        Payload::Listing(listing) => {
            let body = Body::listing(desk, Arc::clone(&site), *listing);
            if body.is_none() {
                out.clear();
                let mut maker = desk.maker(&site);
                maker.id = id;
                answer = maker.refuse(Refusal::Exhausted, &asked, "", out);
            }
            body
        }
    };
    desk.counts(true).answered(answer.status);
    Ok(response(out, &answer, body, &asked))
}

/// A request as the plain listener reads it. It is called old where chunks are not ours to write.
fn asked<B>(request: &Request<B>) -> head::Request<'_> {
    let method = match *request.method() {
        http::Method::GET => Method::Get,
        http::Method::HEAD => Method::Head,
        http::Method::OPTIONS => Method::Options,
        _ => Method::Other,
    };
    let all = request.headers();
    let values =
        |name: HeaderName| -> Values<'_> { all.get_all(name).iter().map(HeaderValue::as_bytes).collect() };
    // What comes twice and may not says nothing: the empty value is none of its grammar's.
    let once = |name: HeaderName| -> Option<&[u8]> {
        let mut lines = all.get_all(name).iter();
        let first = lines.next()?;
        Some(if lines.next().is_some() { b"" } else { first.as_bytes() })
    };
    let path = request.uri().path();
    head::Request {
        method,
        name: request.method().as_str(),
        path: if path.is_empty() { "/" } else { path },
        query: request.uri().query(),
        old: true,
        keep: true,
        others: Others::Map {
            authority: request.uri().authority().map(http::uri::Authority::as_str),
            fields: all,
        },
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
            agent: all.get(header::USER_AGENT).map(HeaderValue::as_bytes),
            referrer: all.get(header::REFERER).map(HeaderValue::as_bytes),
        },
    }
}

/// The answer whose head is `out`, with `body`, or what follows the head there.
fn response(out: &[u8], answer: &Answer, body: Option<Body>, asked: &head::Request<'_>) -> Response<Body> {
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
        // These are of a connection, and the listener's to send.
        if name != header::CONNECTION && name != header::DATE {
            headers.append(name, value);
        }
    }
    let body = body.unwrap_or_else(|| match asked.method {
        // What a HEAD would have is told by its fields.
        Method::Head => Body::empty(),
        _ => Body::whole(out[length..].to_vec().into()),
    });
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

impl listener::Refusals for Secure {
    fn refused(&self, status: u16) {
        DESK.with_borrow_mut(|desk| {
            desk.get_or_insert_with(|| open(&self.0)).counts(true).answered(status);
        });
    }
}

impl<B: Send + 'static> Service<Request<B>> for Secure {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let (mut wait, mut site) = match self.answer(&request, None) {
            Ok(response) => return Answering::Now(ready(response)),
            Err(wait) => wait,
        };
        // Its body is of no use, and may not be shared between threads.
        let request = request.map(drop);
        let this = self.clone();
        Answering::Later(Box::pin(async move {
            for waits in 1.. {
                let (give, waiting) = oneshot::channel();
                // Whoever has asked may be gone.
                wait.begin(&this.0, site, move |waited| drop(give.send(waited)));
                let waited =
                    waiting.await.unwrap_or_else(|_| Waited::Found(Vec::new(), Err(Error::Exhausted)));
                match this.answer(&request, Some((waited, waits))) {
                    Ok(response) => return response,
                    Err(next) => (wait, site) = next,
                }
            }
            unreachable!("nobody waits more often than MAX_WAITS")
        }))
    }
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(answer) => Pin::new(answer).poll(context).map(Ok),
            Self::Later(answer) => answer.as_mut().poll(context).map(Ok),
        }
    }
}
