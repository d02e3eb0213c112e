//! The admin listener: the API under `/api/v1`, health and metrics.
//!
//! - [`routes`]: the table of the API's paths, which actix-web routes, and who may ask.
//! - [`pages`]: what needs no key, which the `router` crate routes: health, metrics and the API's description.
//! - `api`: the API itself: links, batches, import and export, statistics, QR codes, domains, keys.
//! - `health`, `metrics`: for the operator's machines; the listener's own counters.
//! - [`openapi`]: the API's description, and its page for people.
//! - `protocol`: what stands between the listener and a handler: actix-web's application as its service; bodies, queries and
//!   errors.
//! - `auth`, `audit`, `readers`, `blocking`: who may ask, what is noted of a write, the connections to read from, and threads.
//!
//! It is the `listener` crate that reads and writes here, as in front of everything else, and actix-web that routes the API.

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
use tokio::sync::Semaphore;

use crate::domains::short_url;
use crate::link::Link;
use crate::store::{self, Store};
use auth::UnknownTokens;
use protocol::mount::Mounted;
use readers::ReaderPool;

pub use api::batch::{LinkName, Outcome};
pub use api::domains::DomainList;
pub use api::links::{Listing, Shown};
pub use metrics::Requests;

/// The longest head, in bytes: a search of 8,000 bytes, each percent-encoded, and its fields.
const HEAD_BYTES: usize = 32 * 1024;

/// How long a client may take next to nothing of an answer.
const STALLED: Duration = Duration::from_secs(10);

/// The longest body that somebody may announce. So many fit in a sum of all.
const ANY_BYTES: u64 = 1 << 40;

/// Requests of one connection at once, by HTTP/2.
const STREAMS: u32 = 32;

/// How long requests in flight may take at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// What requests may have sent of bodies that are held until they are whole, together, in KiB.
const BODIES_KIB: usize = 64 * 1024;

/// Read connections the API's queries share; SQLite's page cache is per connection, so few are better.
const READERS: usize = 4;

/// Imports and exports at once. Each holds a thread.
const TRANSFERS: usize = 2;

/// How long clients may take.
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
    /// Idle connections are kept above the 60 s after which common proxies close theirs, so that none is closed on a
    /// request just sent.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { head: seconds(10), body: seconds(30), idle: seconds(75) }
    }
}

/// What the handlers share.
pub struct State {
    store: Store,
    pages: pages::Pages,
    readers: ReaderPool,
    transfers: Arc<Semaphore>,
    /// Of [`BODIES_KIB`].
    bodies: Semaphore,
    /// Where short URLs start, without a slash at the end.
    base: String,
    readiness: Readiness,
    registry: Registry,
    requests: Requests,
    unknown_tokens: UnknownTokens,
    /// Tokens of an issuer, where those are taken.
    tokens: Option<Tokens>,
    /// By which names requests without a key are taken; by any where absent.
    hosts: Option<AllowedHosts>,
    timeouts: Timeouts,
    audit_log: Option<AuditLog>,
}

impl State {
    /// `base` is the URL the public listener is reached at, such as `https://go.example`. `requests`, of the admin listener,
    /// join what is in `registry`, which `/metrics` shows.
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
            bodies: Semaphore::new(BODIES_KIB),
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

    /// Takes requests without a key by these names only: for a listener on loopback, where web pages are kept out by
    /// nothing else (DNS rebinding).
    #[must_use]
    pub fn only_for(mut self, hosts: AllowedHosts) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Takes these tokens of an issuer beside our own.
    #[must_use]
    pub fn vouched_for_by(mut self, tokens: Option<Tokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Gives clients so long.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Logs writes there.
    #[must_use]
    pub fn logging(mut self, audit_log: Option<AuditLog>) -> Self {
        self.audit_log = audit_log;
        self
    }

    fn short_url(&self, link: &Link) -> String {
        short_url(&self.base, link.domain.as_deref(), &link.code)
    }
}

/// How the admin listener at this address behaves: that of the `listener` crate, for few connections of which those that stand
/// still make room for others. What it refuses is counted in `requests`.
pub fn config(address: Address, timeouts: Timeouts, requests: &Requests) -> Config {
    let private = Config::private(address);
    Config {
        limits: Limits {
            head_bytes: HEAD_BYTES,
            handshake_time: timeouts.head,
            head_time: timeouts.head,
            idle: timeouts.idle,
            write_stall: STALLED,
            // A file to import is as long as it is, and is never held whole. Whoever holds a body bounds it, in bytes and in
            // time, and is to be first to say so.
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

/// What the admin listener serves, on workers that are a thread each.
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
