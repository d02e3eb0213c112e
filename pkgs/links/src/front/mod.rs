//! The public listener: answers `GET|HEAD /{code}` and little else.
//!
//! The `listener` crate accepts visitors, reads requests and sends answers, with and without TLS, on one thread per
//! core. Each thread has its own [`worker_context`]: a read connection, a cache and counters. The [`http_service`]
//! answers plain visits of every protocol on the listener's fast path, which only reads a request's lines. A request
//! that the fast path declines arrives as a request object: a password form, HTTP/1.0, a body, an escaped path, or an
//! HTTP/2 or HTTP/3 request that the listener cannot pass to the fast path. Both ways look up the path in the same
//! [`routes`], decide by the same [`visit`](worker_context::WorkerContext::visit), and [`render`] its outcome in the
//! same way.

mod attempts;
mod host;
mod http_service;
mod metrics;
mod remote;
mod render;
pub mod request;
mod retention;
mod routes;
#[cfg(test)]
mod tests;
mod unlock;
mod visit;
mod worker_context;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use service::shutdown::Shutdown;

use crate::cache::Cache;
use crate::clicks::{ClickBuffer, Counted};
use crate::geoip::GeoIp;
use crate::store::Store;

pub use attempts::Attempts;
pub use host::UnknownHost;
pub use http_service::{HttpService, TlsPolicy};
pub use metrics::Metrics;
pub use render::page::Refusal;
pub use retention::Retention;
#[doc(hidden)]
pub use unlock::password_of;

/// The longest request head, in bytes. By default browsers and proxies stay below 8 KiB.
const MAX_HEAD_BYTES: usize = 8 * 1024;

/// The most fields a head may have; browsers send some 20.
const MAX_FIELDS: usize = 64;

/// The longest body that visitors may announce, in bytes. Forms are shorter. A body that is longer than a form gets our
/// own refusal. A body beyond this limit is not read.
const MAX_BODY_BYTES: u64 = 16 * 1024;

/// The most bytes of answers that wait for slow clients, of all workers together. If an answer finds no room, its
/// connection is closed. Most clients take their answer at once, and clients that never read must not use up the
/// memory.
const HELD_BYTES: u64 = 64 << 20;

/// How often a worker updates its clock and passes on its clicks.
const TICK: Duration = Duration::from_millis(250);

/// The least time between two flushes of the click buffer to the store. Together with the tick before it, a click starts
/// on its way to the store within a second.
const LEAST_PAUSE: Duration = Duration::from_millis(750);

/// The time between two flushes for each count in the first one, if that is more than [`LEAST_PAUSE`]. A count costs the
/// store 5 to 15 µs, whether it stands for one click or for many, so this keeps clicks below some 6 % of one CPU, until
/// [`LONGEST_PAUSE`] is reached: beyond that, more counts take more.
const PAUSE_PER_COUNT: Duration = Duration::from_micros(250);

/// The longest time between two flushes.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Settings of visits, except for the links.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where `/` of the default domain redirects to; 404 if absent.
    pub root_target: Option<String>,
    /// What answers at hosts that belong to no domain.
    pub unknown_host: UnknownHost,
    /// Where `/favicon.ico` redirects to; 404 if absent.
    pub favicon_target: Option<String>,
    /// The text of `/robots.txt`.
    pub robots: String,
    /// Whether a redirect has a small page with the link, for clients that do not follow redirects.
    pub redirect_body: bool,
    /// How long a redirect may be cached privately, in seconds, unless it may end without an edit. With 0, every click
    /// can be counted.
    pub redirect_max_age: u32,
    /// How long clicks are kept by day and hour.
    pub click_retention: Retention,
}

/// Limits for visitors.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of all workers. Further connections are closed at once.
    pub connections: usize,
    /// Connections per address; 0 means no limit.
    pub connections_per_address: u32,
    /// Timeout of a request's head from its first byte, of a form from the end of its head, of a connection's first
    /// byte, and of the client's reading of an answer.
    pub head_timeout: Duration,
    /// Timeout of an idle connection between requests.
    pub idle_timeout: Duration,
    /// How long running requests have at shutdown.
    pub drain_timeout: Duration,
}

impl Limits {
    /// The configuration of a listener with these limits, without its addresses.
    pub fn config(&self) -> listener::Config {
        let Self {
            connections,
            connections_per_address,
            head_timeout: head,
            idle_timeout: idle,
            drain_timeout: drain,
        } = *self;
        listener::Config {
            limits: listener::Limits {
                connections,
                connections_per_address,
                handshake_time: head,
                head_bytes: MAX_HEAD_BYTES,
                head_time: head,
                fields: MAX_FIELDS,
                body_bytes: MAX_BODY_BYTES,
                body_idle: head,
                body_time: head,
                idle,
                write_stall: head,
                answer_bytes_total: HELD_BYTES,
                ..listener::Limits::default()
            },
            // Nothing needs the address that a visitor connected to.
            local_addresses: false,
            // Visitors send only forms of a few hundred bytes.
            http2: listener::Http2 {
                stream_window: 16 * 1024,
                // The least that HTTP/2 allows (RFC 9113, section 6.9.2).
                connection_window: 65_535,
                adaptive: false,
                ..listener::Http2::default()
            },
            drain,
            ..listener::Config::default()
        }
    }
}

/// The state that workers share.
pub struct Front {
    /// The settings of visits.
    pub settings: Settings,
    /// The store for clicks and cache misses.
    pub store: Store,
    /// The cache.
    pub cache: Arc<Cache>,
    /// Clicks on their way to the store.
    pub click_buffer: ClickBuffer,
    /// The countries of addresses, if they are counted.
    pub geoip: Option<GeoIp>,
    /// Limits of password attempts.
    pub attempts: Attempts,
    /// The workers' counters.
    pub metrics: Arc<Metrics>,
    /// Shuts the service down.
    pub shutdown: Shutdown,
}

impl Front {
    /// Flushes the clicks of all workers to the store, repeatedly, until the workers have `ended`.
    pub async fn flush_until(&self, ended: impl Future<Output = ()>) {
        let (mut ended, mut counts) = (pin!(ended), 0);
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause(counts)) => counts = self.flush().await,
                () = &mut ended => return,
            }
        }
    }

    /// Makes the store merge or delete old days and hours of clicks. The future can be dropped at any time.
    pub async fn fold_clicks(&self) -> Infallible {
        retention::keep(self.store.clone(), self.settings.click_retention).await
    }

    /// Returns granted clicks that this node does not need, if the database has other nodes. The future can be dropped
    /// at any time.
    pub async fn give_back_grants(&self) -> Infallible {
        match self.store.remote() {
            Some(store) => remote::give_back(&self.cache, &store).await,
            None => std::future::pending().await,
        }
    }

    /// Flushes the clicks of all workers to the store, and returns how many counts they came to. Clicks that it does not
    /// accept wait for the next flush.
    async fn flush(&self) -> usize {
        let Some(batch) = self.click_buffer.take(self.geoip.as_ref()) else { return 0 };
        let counts = batch.clicks.len() + batch.countries.len();
        let batch = Arc::new(batch);
        if let Err(error) = self.store.count(Arc::clone(&batch)).await {
            tracing::warn!(%error, "clicks are not in the store yet");
            self.entered(self.click_buffer.enter(Arc::unwrap_or_clone(batch)));
        }
        counts
    }

    /// Flushes the last clicks, after the workers have ended.
    pub fn close(&self) {
        if let Some(store) = self.store.remote() {
            remote::give_back_all(&self.cache, &store);
        }
        let Some(batch) = self.click_buffer.take(self.geoip.as_ref()) else { return };
        let clicks = batch.total();
        if let Err(error) = self.store.count(Arc::new(batch)).wait() {
            tracing::error!(%error, clicks, "the last clicks are lost");
        }
    }

    fn enter_counted(&self, counted: Counted) {
        self.entered(self.click_buffer.enter_counted(counted));
    }

    /// Logs how many clicks found no room, if any.
    fn entered(&self, lost: u64) {
        if lost > 0 {
            tracing::error!(clicks = lost, "the store has been away too long: clicks are lost");
        }
    }
}

/// How long the next flush waits after one with so many counts.
fn pause(counts: usize) -> Duration {
    let counts = u32::try_from(counts).unwrap_or(u32::MAX);
    PAUSE_PER_COUNT.saturating_mul(counts).clamp(LEAST_PAUSE, LONGEST_PAUSE)
}
