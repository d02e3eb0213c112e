//! The admin listener: the API under `/api/v1`, health and metrics.
//!
//! - [`routes`]: the table of the API's paths, which actix-web routes, with the required scopes.
//! - [`pages`]: pages without a key, which the `router` crate routes: health, metrics and the API's description.
//! - `api`: the API itself: links, batches, import and export, statistics, QR codes, domains, keys.
//! - `health`, `metrics`: health checks; the listener's own counters.
//! - [`openapi`]: the API's description, and its page for people.
//! - `protocol`: the layer between the listener and handlers: actix-web's application as its service; bodies,
//!   queries and errors.
//! - `auth`, `audit`, `readers`, `blocking`: tokens, the audit log, read connections, and threads.
//!
//! As everywhere else, the `listener` crate reads and writes; actix-web only routes the API.

pub(crate) mod api;
mod audit;
mod auth;
mod blocking;
mod health;
mod metrics;
pub mod openapi;
pub mod pages;
mod protocol;
mod readers;
pub mod routes;

use std::sync::Arc;
use std::time::Duration;

use actix_service::ServiceFactory;
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use listener::{Config, Http2, HttpService, Limits};
use oidc::jwt::Tokens;
use service::access_log::AuditLog;
use service::allowed_hosts::AllowedHosts;
use service::metrics::Registry;
use service::ready::Readiness;
use service::socket::Address;
use tokio::sync::{Semaphore, watch};

use crate::domains::short_url;
use crate::link::Link;
use crate::store::{self, Store};
use auth::UnknownTokens;
use protocol::budget::AnswerBudget;
use protocol::mount::Mounted;
use readers::ReaderPool;

pub use api::batch::{LinkName, Outcome};
pub use api::domains::DomainList;
pub use api::links::{Listing, Shown};
pub use metrics::Requests;

/// The longest head, in bytes: for a search of 8,000 percent-encoded bytes, and other fields.
const HEAD_BYTES: usize = 32 * 1024;

/// How long a client may read next to nothing of an answer.
const STALLED: Duration = Duration::from_secs(10);

/// The longest body that may be announced. It is practically no limit, but the sum of many such lengths still fits a
/// `u64`.
const ANY_BYTES: u64 = 1 << 40;

/// How many requests an HTTP/2 connection may have at once.
const STREAMS: u32 = 32;

/// How long running requests may take at shutdown, after the writes among them have had their time.
const DRAIN: Duration = Duration::from_secs(10);

/// The sum of all request bodies that are held until they are answered, in KiB.
const BODIES_KIB: usize = 64 * 1024;

/// The sum of all large answers that are being sent, in bytes.
const ANSWERS_BYTES: u64 = 64 * 1024 * 1024;

/// Read connections that the API's queries share. SQLite's page cache is per connection, so fewer are better.
const READERS: usize = 4;

/// Imports and exports at once. Each occupies a thread.
const TRANSFERS: usize = 2;

/// Timeouts of clients.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// To send a request's head.
    pub head: Duration,
    /// To send a body of JSON.
    pub body: Duration,
    /// Between requests.
    pub idle: Duration,
}

impl Default for Timeouts {
    /// Idle connections are kept longer than the 60 s of common proxies. So none is closed just as a proxy sends a
    /// request on it.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { head: seconds(10), body: seconds(30), idle: seconds(75) }
    }
}

/// The state that handlers share.
pub struct State {
    store: Store,
    pages: pages::Pages,
    readers: ReaderPool,
    transfers: Arc<Semaphore>,
    /// Permits of [`BODIES_KIB`].
    bodies: Arc<Semaphore>,
    /// The memory of large answers.
    answers: Arc<AnswerBudget>,
    /// Each running write has a receiver.
    writes: watch::Sender<()>,
    /// The start of short URLs, without a final slash.
    base: String,
    readiness: Readiness,
    registry: Registry,
    requests: Requests,
    unknown_tokens: UnknownTokens,
    /// Verifies an issuer's tokens, if there is one.
    tokens: Option<Tokens>,
    /// Requests without a key are accepted only for these hosts, or for any host if absent.
    hosts: Option<AllowedHosts>,
    timeouts: Timeouts,
    audit_log: Option<AuditLog>,
}

impl State {
    /// Makes the state. `base` is the URL of the public listener, such as `https://go.example`. The admin listener's
    /// `requests` are added to `registry`, which `/metrics` shows.
    ///
    /// # Errors
    /// When the database cannot be opened for reading.
    pub fn new(
        store: Store,
        base: &str,
        readiness: Readiness,
        requests: Requests,
        mut registry: Registry,
    ) -> Result<Self, store::Error> {
        requests.register(&mut registry);
        Ok(Self {
            readers: ReaderPool::open(&store, READERS)?,
            store,
            pages: pages::Pages::new(),
            transfers: Arc::new(Semaphore::new(TRANSFERS)),
            bodies: Arc::new(Semaphore::new(BODIES_KIB)),
            answers: AnswerBudget::new(ANSWERS_BYTES),
            writes: watch::Sender::new(()),
            base: base.trim_end_matches('/').to_owned(),
            readiness,
            requests,
            unknown_tokens: UnknownTokens::default(),
            tokens: None,
            hosts: None,
            timeouts: Timeouts::default(),
            audit_log: None,
            registry,
        })
    }

    /// Accepts requests without a key only for these hosts. This is needed on loopback, where nothing else keeps web
    /// pages out (DNS rebinding).
    #[must_use]
    pub fn only_for(mut self, hosts: AllowedHosts) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Also accepts an issuer's tokens.
    #[must_use]
    pub fn vouched_for_by(mut self, tokens: Option<Tokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets clients' timeouts.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets the audit log.
    #[must_use]
    pub fn logging(mut self, audit_log: Option<AuditLog>) -> Self {
        self.audit_log = audit_log;
        self
    }

    /// Completes once no write is running. The listener waits only for writes whose clients are still there.
    pub fn writes_ended(&self) -> impl Future<Output = ()> + use<> {
        let writes = self.writes.clone();
        async move { writes.closed().await }
    }

    fn short_url(&self, link: &Link) -> String {
        short_url(&self.base, link.domain.as_deref(), &link.code)
    }
}

/// The `listener` configuration of an admin listener at this address. It allows few connections, and stalled ones are
/// closed to make room for others. Requests that the listener refuses are counted in `requests`.
pub fn config(address: Address, timeouts: Timeouts, requests: &Requests) -> Config {
    let private = Config::private(address);
    Config {
        limits: Limits {
            head_bytes: HEAD_BYTES,
            handshake_time: timeouts.head,
            head_time: timeouts.head,
            idle: timeouts.idle,
            write_stall: STALLED,
            // A file to import may have any length, and is never held in memory as a whole. Handlers that hold a body
            // limit its bytes and its time themselves, before the listener does.
            body_bytes: ANY_BYTES,
            body_bytes_total: u64::MAX,
            body_idle: timeouts.body.max(api::bulk::STALLED) + STALLED,
            body_time: Duration::MAX,
            ..private.limits
        },
        http2: Http2 { streams: STREAMS, ..Http2::default() },
        refusals: Some(Arc::new(requests.clone())),
        drain: DRAIN,
        ..private
    }
}

/// The service of the admin listener. Each of its workers is one thread.
pub fn service(state: State) -> impl HttpService {
    Mounted::new(Arc::new(state))
}

/// The application of one worker.
fn app(
    state: Arc<State>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<BoxBody>,
        Error = actix_web::Error,
        InitError = (),
    >,
> {
    App::new()
        .app_data(web::Data::from(state))
        .wrap(from_fn(auth::by_local_names))
        .wrap(from_fn(metrics::count))
        .wrap(from_fn(protocol::compress::answers))
        .configure(routes::configure)
}
