//! The admin listener: the API under `/api/v1`, health and metrics.
//!
//! - [`routes`]: the table of what is served, and who may ask.
//! - `links`, `batch`, `bulk`, `stats`, `qr`: the API itself.
//! - `health`, `metrics`: for the operator's machines.
//! - [`openapi`]: the API's description, and its page for people.
//! - `auth`, `body`, `compress`, `failure`, `query`, `readers`: what the handlers stand on.

mod auth;
mod batch;
mod body;
mod bulk;
mod compress;
mod failure;
mod health;
mod links;
mod metrics;
pub mod openapi;
mod qr;
mod query;
mod readers;
pub mod routes;
mod stats;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::middleware::from_fn;
use actix_web::{App, HttpServer, web};
use service::metrics::Registry;
use service::ready::Readiness;
use service::shutdown::Shutdown;
use service::socket::Listener;
use tokio::sync::Semaphore;

use crate::store::{self, Store};
use metrics::Requests;
use readers::Readers;

pub use batch::Outcome;
pub use links::{Listing, Shown};

/// Connections accepted at once; more wait in the listener's backlog.
const CONNECTIONS: usize = 256;

/// How long an idle connection is kept: above the 60 s after which common proxies close theirs, so that
/// none is closed on a request just sent.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How long a request's head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long requests in flight may take at shutdown, in seconds.
const DRAIN_SECONDS: u64 = 10;

/// Read connections the API's queries share; SQLite's page cache is per connection, so few are better.
const READERS: usize = 4;

/// Imports and exports at once. Each holds a thread.
const TRANSFERS: usize = 2;

/// Threads for what blocks, per worker: every reader and transfer, and as many writes again.
const BLOCKING_THREADS: usize = 2 * (READERS + TRANSFERS);

/// What the handlers share.
pub struct State {
    store: Store,
    readers: Readers,
    transfers: Arc<Semaphore>,
    /// Where short URLs start, without a slash at the end.
    base: String,
    readiness: Readiness,
    registry: Registry,
    requests: Requests,
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
            readers: Readers::open(&store, READERS)?,
            store,
            transfers: Arc::new(Semaphore::new(TRANSFERS)),
            base: base.trim_end_matches('/').to_owned(),
            readiness,
            requests: Requests::register(&mut registry),
            registry,
        })
    }

    fn short_url(&self, code: &str) -> String {
        format!("{}/{code}", self.base)
    }
}

/// Serves until `shutdown`, then finishes what is in flight. Runs on actix's runtime
/// ([`actix_web::rt::System`]).
///
/// # Errors
/// When a listener cannot be used.
pub async fn serve(
    listeners: Vec<Listener>,
    state: Arc<State>,
    workers: usize,
    shutdown: Shutdown,
) -> io::Result<()> {
    let state = web::Data::from(state);
    let mut server = HttpServer::new(move || {
        App::new()
            .app_data(state.clone())
            .wrap(from_fn(compress::answers))
            .wrap(from_fn(metrics::count))
            .configure(routes::configure)
    })
    .workers(workers)
    .worker_max_blocking_threads(BLOCKING_THREADS)
    .max_connections(CONNECTIONS.div_ceil(workers))
    .keep_alive(KEEP_ALIVE)
    .client_request_timeout(HEAD_TIMEOUT)
    .shutdown_timeout(DRAIN_SECONDS)
    .disable_signals();
    for listener in listeners {
        server = match listener {
            Listener::Tcp(listener) => server.listen(listener)?,
            Listener::Unix(listener) => server.listen_uds(listener)?,
        };
    }
    let running = server.run();
    let handle = running.handle();
    actix_web::rt::spawn(async move {
        shutdown.wait().await;
        handle.stop(true).await;
    });
    running.await
}
