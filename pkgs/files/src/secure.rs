//! The same files over TLS: HTTP/1.1, HTTP/2 and HTTP/3 come through `listener`, whose workers call this service.
//!
//! Answers are made as on the plain listener, by [`Maker`], from a cache that each thread has for itself; only
//! the bodies differ, for encryption has to see their bytes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use tower_service::Service;

use crate::answer::{Answer, Cold, Maker, Payload, Tail};
use crate::body::Body;
use crate::cache::Cache;
use crate::front::Front;
use crate::http::head::{self, Fields, Method, Values};
use crate::site::Site;
use crate::site::root::{Error, Found, Patience};

/// How often a thread looks at the clock and for a new site, at most.
const TICK: Duration = Duration::from_millis(250);

/// The most fields of an answer, those of rules included.
const MAX_FIELDS: usize = 128;

/// Answers requests with the files of a [`Front`].
#[derive(Clone, Debug)]
pub struct Secure(Arc<Front>);

/// What a thread has for itself.
struct Own {
    site: Arc<Site>,
    cache: Cache,
    tail: Tail,
    now: SystemTime,
    tick: u32,
    ticked: Instant,
    out: Vec<u8>,
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
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

    /// Makes an answer from what this thread has; `found` is what the disk had.
    fn answer<B>(
        &self,
        request: &Request<B>,
        found: Option<(Vec<u8>, Result<Found, Error>)>,
    ) -> Result<Response<Body>, Cold> {
        OWN.with_borrow_mut(|own| {
            let own = own.get_or_insert_with(|| Own::new(&self.0));
            own.clock(&self.0);
            let asked = asked(request);
            own.out.clear();
            let mut maker = Maker {
                site: &own.site,
                cache: &mut own.cache,
                tick: own.tick,
                now: own.now,
                memory_max: 0,
                tail: &own.tail,
                last: false,
            };
            let answer = match found {
                Some((path, found)) => maker.found(&path, found, &asked, &mut own.out),
                None => maker.answer(&asked, &mut own.out)?,
            };
            Ok(response(&own.out, answer, &own.site, &asked))
        })
    }
}

impl Own {
    fn new(front: &Front) -> Self {
        let settings = &front.settings;
        let fresh_for =
            u32::try_from(settings.revalidate.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX);
        Self {
            site: front.site(),
            // Time alone tells of changes here: nobody would listen to a watcher while no request comes.
            cache: Cache::new(settings.open_files, fresh_for.max(1), 0, None),
            // Its date is dropped: the listener sends one.
            tail: Tail::at(now()),
            now: now(),
            tick: 1,
            ticked: Instant::now(),
            out: Vec::new(),
        }
    }

    fn clock(&mut self, front: &Front) {
        let passed = self.ticked.elapsed();
        if passed < TICK {
            return;
        }
        let ticks = u32::try_from(passed.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX);
        self.tick = self.tick.saturating_add(ticks);
        self.ticked = Instant::now();
        self.now = now();
        let site = front.site();
        if !Arc::ptr_eq(&site, &self.site) {
            self.site = site;
            self.cache.clear();
        }
    }
}

/// The present, in whole seconds, as the plain listener has it.
fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
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
        path: if path.is_empty() { "/" } else { path },
        query: request.uri().query(),
        old: true,
        keep: true,
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

/// The answer whose head is `out`, with what follows the head there as its body.
fn response(out: &[u8], answer: Answer, site: &Arc<Site>, asked: &head::Request<'_>) -> Response<Body> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = parsed.parse(out) else {
        tracing::error!("the head of an answer has more than {MAX_FIELDS} fields");
        let mut failed = Response::new(Body::empty());
        *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return failed;
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
    let body = match answer.payload {
        // What a HEAD would have is told by its fields.
        Payload::None if asked.method == Method::Head => Body::empty(),
        Payload::None => Body::whole(out[length..].to_vec().into()),
        Payload::File { file, range, .. } => Body::file(&file, range),
        Payload::Parts(parts) => Body::parts(*parts),
        Payload::Listing(listing) => Body::listing(Arc::clone(site), *listing),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

impl<B: Send + 'static> Service<Request<B>> for Secure {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let Cold(path) = match self.answer(&request, None) {
            Ok(response) => return Answering::Now(ready(response)),
            Err(cold) => cold,
        };
        // Its body is of no use, and may not be shared between threads.
        let request = request.map(drop);
        let (this, site) = (self.clone(), self.0.site());
        Answering::Later(Box::pin(async move {
            let wanted = path.clone();
            let found = tokio::task::spawn_blocking(move || site.root.find(&wanted, Patience::Disk)).await;
            let found = found.unwrap_or(Err(Error::Missing));
            match this.answer(&request, Some((path, found))) {
                Ok(response) => response,
                Err(Cold(_)) => unreachable!("what was found is not asked for again"),
            }
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
