//! The admin listener: the API under `/api/v1`, health and metrics.
//!
//! - [`routes`]: the table of the API's paths, which actix-web routes, and who may ask.
//! - [`pages`]: what needs no key, which the `router` crate routes: health, metrics and the API's description.
//! - `api`: the API itself: links, batches, import and export, statistics, QR codes, domains, keys.
//! - `health`, `metrics`: for the operator's machines; the listener's own counters.
//! - [`openapi`]: the API's description, and its page for people.
//! - `protocol`: what stands between a socket and a handler: the one parser, deadlines and TLS; bodies, queries, errors and the
//!   access log.
//! - `auth`, `audit`, `readers`: who may ask, what is noted of a write, and the connections to read from.
//!
//! Below the routes it is actix-http that reads and writes here, and not the `listener` crate: an `App` is a service of
//! actix's own requests and payloads, of http 0.2, and its futures stay on the thread that made them, where the listener asks
//! for a `tower` service of http 1 whose futures are `Send`. There is no maintained adaptor between the two; one of ours would
//! copy each field and hand each body through a channel to a runtime beside the listener's. What the listener would bring,
//! the one parser, deadlines, room for newcomers and a drain, stands in `protocol` in front of actix-http instead.

pub(crate) mod api;
mod audit;
mod auth;
mod health;
mod metrics;
pub mod openapi;
pub mod pages;
mod protocol;
mod readers;
pub mod routes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_server::{FromStream, Server};
use actix_service::{ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::dev::AppConfig;
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use listener::tls::Tls;
use oidc::jwt::Tokens;
use service::access_log::{AuditLog, Lines};
use service::allowed_hosts::AllowedHosts;
use service::handover;
use service::metrics::Registry;
use service::ready::{Heartbeats, Readiness};
use service::shutdown::Shutdown;
use service::socket::Listener;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::domains::short_url;
use crate::link::Link;
use crate::store::{self, Store};
use auth::UnknownTokens;
use metrics::Requests;
use protocol::connection::Connections;
use protocol::maybe_tls::MaybeTls;
use readers::ReaderPool;

pub use api::batch::Outcome;
pub use api::domains::DomainList;
pub use api::links::{Listing, Shown};

/// Connections at once; one more takes the place of the one that has stood still for longest.
const CONNECTIONS: usize = 256;

/// How often the listener gives a sign of life.
const BEAT: Duration = Duration::from_millis(250);

/// How long a client may take to close once all is said.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long requests in flight may take at shutdown, in seconds.
const DRAIN_SECONDS: u64 = 10;

/// Read connections the API's queries share; SQLite's page cache is per connection, so few are better.
const READERS: usize = 4;

/// Imports and exports at once. Each holds a thread.
const TRANSFERS: usize = 2;

/// Threads for what blocks, per worker: every reader and transfer, and as many writes again.
const BLOCKING_THREADS: usize = 2 * (READERS + TRANSFERS);

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
    /// Where short URLs start, without a slash at the end.
    base: String,
    readiness: Readiness,
    registry: Registry,
    requests: Requests,
    beats: Heartbeats,
    unknown_tokens: UnknownTokens,
    /// Tokens of an issuer, where those are taken.
    tokens: Option<Tokens>,
    /// By which names requests without a key are taken; by any where absent.
    hosts: Option<AllowedHosts>,
    timeouts: Timeouts,
    /// Lines of the access log, where there is one.
    access_log: Option<Lines>,
    audit_log: Option<AuditLog>,
}

impl State {
    /// `base` is the URL the public listener is reached at, such as `https://go.example`. The admin
    /// listener's own metrics join those in `registry`, which `/metrics` shows.
    ///
    /// # Errors
    /// When the database cannot be opened for reading.
    pub fn new(
        store: Store,
        base: &str,
        readiness: Readiness,
        mut registry: Registry,
    ) -> Result<Self, store::Error> {
        Ok(Self {
            readers: ReaderPool::open(&store, READERS)?,
            store,
            pages: pages::Pages::new(),
            transfers: Arc::new(Semaphore::new(TRANSFERS)),
            base: base.trim_end_matches('/').to_owned(),
            readiness,
            requests: Requests::register(&mut registry),
            beats: Heartbeats::new(1),
            unknown_tokens: UnknownTokens::default(),
            tokens: None,
            hosts: None,
            timeouts: Timeouts::default(),
            access_log: None,
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

    /// Logs requests there, and writes there.
    #[must_use]
    pub fn logging(mut self, access_log: Option<Lines>, audit_log: Option<AuditLog>) -> Self {
        self.access_log = access_log;
        self.audit_log = audit_log;
        self
    }

    /// The listener's signs of life.
    pub fn heartbeats(&self) -> Heartbeats {
        self.beats.clone()
    }

    fn short_url(&self, link: &Link) -> String {
        short_url(&self.base, link.domain.as_deref(), &link.code)
    }
}

/// How long those that were accepted have to ask, once no more are since another process does.
const PAUSED: Duration = Duration::from_secs(2);

/// Serves until `shutdown`, then finishes what is in flight; by TLS alone where that is given. Runs on actix's runtime
/// ([`actix_web::rt::System`]).
///
/// # Errors
/// When a listener cannot be used.
pub async fn serve(
    listeners: Vec<Listener>,
    tls: Option<Tls>,
    state: Arc<State>,
    workers: usize,
    shutdown: Shutdown,
) -> io::Result<()> {
    let state = web::Data::from(state);
    let beats = state.beats.clone();
    let timeouts = state.timeouts;
    let places = CONNECTIONS.div_ceil(workers);
    let mut server = Server::build()
        .workers(workers)
        .worker_max_blocking_threads(BLOCKING_THREADS)
        // Those that make room are still counted while they end.
        .max_concurrent_connections(2 * places)
        .shutdown_timeout(DRAIN_SECONDS)
        .disable_signals();
    let acceptor = tls.as_ref().map(acceptor);
    let ending = Shutdown::new();
    for listener in listeners {
        let (state, stopping, tls) = (state.clone(), ending.clone(), acceptor.clone());
        let connections = move || (Connections::new(places, timeouts), tls.clone());
        server = match listener {
            Listener::Tcp(listener) => server.listen("admin", listener, move || {
                http(state.clone(), stopping.clone(), connections(), |stream: &TcpStream| {
                    stream.peer_addr().ok()
                })
            })?,
            Listener::Unix(listener) => server.listen_uds("admin", listener, move || {
                http(state.clone(), stopping.clone(), connections(), |_: &UnixStream| None)
            })?,
        };
    }
    if let Some(Tls { store, .. }) = tls {
        actix_web::rt::spawn(async move { store.poll(listener::tls::POLL).await });
    }
    let running = server.run();
    let handle = running.handle();
    actix_web::rt::spawn(async move {
        shutdown.wait().await;
        if handover::is_handed_over() {
            // Who waits to be accepted is the other process'. Who was accepted, and has yet to ask, would be closed by actix-web
            // as soon as it is to end.
            handle.pause().await;
            actix_web::rt::time::sleep(PAUSED).await;
        }
        ending.trigger();
        handle.stop(true).await;
    });
    let ended = running.await;
    beats.done(0);
    ended
}

/// HTTP/1.1 by TLS, which is what actix-web speaks here.
fn acceptor(tls: &Tls) -> TlsAcceptor {
    let mut config = (*tls.tcp).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// What one worker does with the connections of a listener, by TLS where there is what accepts it.
fn http<S: FromStream + AsyncRead + AsyncWrite + Unpin + 'static>(
    state: web::Data<State>,
    shutdown: Shutdown,
    (connections, tls): (Connections, Option<TlsAcceptor>),
    peer: fn(&S) -> Option<SocketAddr>,
) -> impl ServiceFactory<S, Config = (), Response = (), Error = DispatchError, InitError = ()> {
    let (beats, timeouts) = (state.beats.clone(), state.timeouts);
    let lines = state.access_log.clone();
    actix_web::rt::spawn(async move {
        loop {
            beats.beat(0);
            if let Some(lines) = &lines {
                lines.flush();
            }
            tokio::time::sleep(BEAT).await;
        }
    });
    let app = App::new()
        .app_data(state)
        .wrap(from_fn(auth::by_local_names))
        .wrap(from_fn(metrics::count))
        .wrap(from_fn(protocol::request_log::told))
        .wrap(from_fn(protocol::compress::answers))
        .wrap(from_fn(protocol::request_log::logged))
        .wrap(from_fn(protocol::connection::answers))
        .configure(routes::configure);
    let http = HttpService::build()
        .keep_alive(timeouts.idle)
        // The stream sees to it, of every request.
        .client_request_timeout(Duration::ZERO)
        .on_connect_ext(protocol::connection::remember::<MaybeTls<S>>)
        .client_disconnect_timeout(CLOSE_TIMEOUT)
        .graceful_shutdown_signal(move || {
            let shutdown = shutdown.clone();
            async move { shutdown.wait().await }
        })
        .h1(map_config(app, |()| AppConfig::default()));
    fn_service(move |stream: S| {
        let peer = peer(&stream);
        let wire = MaybeTls::new(stream, tls.as_ref());
        std::future::ready(Ok::<_, DispatchError>((connections.take(wire), peer)))
    })
    .and_then(http)
}
