//! The public listener: answers `GET|HEAD /{code}` and next to nothing else.
//!
//! The `listener` crate accepts visitors, reads what they ask for and sends the answers, in the clear and by TLS, on one
//! thread a core. Each thread has a [`worker_context`] of its own: a read connection, a cache and counters. The [`http_service`]
//! answers plain visits on the listener's fast path, where nothing is made of a request but its lines; what that declines
//! (a password form, HTTP/1.0, a body, an escaped path, HTTP/2 and 3) reaches it as a request. Both look the path up in the
//! same [`routes`], ask the same [`visit`](worker_context::WorkerContext::visit), and [`render`] what comes of it in the same
//! words.

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

use crate::cache::{Cache, Grants};
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

/// The longest request head, in bytes. Browsers and proxies stay below 8 KiB by default.
const MAX_HEAD_BYTES: usize = 8 * 1024;

/// The most fields a head may have; browsers send some 20.
const MAX_FIELDS: usize = 64;

/// The longest body that visitors may announce, in bytes. Forms are shorter, and what is longer than they are is still
/// refused in words of ours; beyond, it is not listened to.
const MAX_BODY_BYTES: u64 = 16 * 1024;

/// Bytes of answers that clients are slow to take, of all workers together. Beyond, whose answers find no room is
/// closed: most take theirs at once, and what they need is not for those who never read.
const HELD_BYTES: u64 = 64 << 20;

/// How often a worker looks at the clock and enters its clicks in the ledger.
const TICK: Duration = Duration::from_millis(250);

/// How often the ledger is handed to the store. Together with the tick before it, a click is on its way to the store within
/// a second.
const FLUSH: Duration = Duration::from_millis(750);

/// What visits come to, beside the links.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where `/` of the default domain redirects to; 404 where absent.
    pub root_target: Option<String>,
    /// What answers at hosts that are no domain's.
    pub unknown_host: UnknownHost,
    /// Where `/favicon.ico` redirects to; 404 where absent.
    pub favicon_target: Option<String>,
    /// The text of `/robots.txt`.
    pub robots: String,
    /// Whether a redirect carries a small page with the link, for clients that do not follow.
    pub redirect_body: bool,
    /// How long a redirect may be cached privately, in seconds. 0 keeps every click countable.
    pub redirect_max_age: u32,
    /// For how long clicks are told apart.
    pub click_retention: Retention,
}

/// What visitors may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of all workers; further ones are closed at once.
    pub connections: usize,
    /// Connections of one address; 0 is no limit.
    pub connections_per_address: u32,
    /// A request's head must be complete this long after its first byte, and a form as long after its head. The first
    /// byte of a connection, and that an answer is taken, has as long.
    pub head_timeout: Duration,
    /// A connection may be idle this long between requests.
    pub idle_timeout: Duration,
    /// At shutdown, requests in flight have this long.
    pub drain_timeout: Duration,
}

impl Limits {
    /// The same as a listener has it, which is yet to be told where it listens.
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
            // Nobody asks where a visitor has come to.
            local_addresses: false,
            // What is sent here are forms of a few hundred bytes.
            http2: listener::Http2 {
                stream_window: 16 * 1024,
                connection_window: 64 * 1024,
                adaptive: false,
                ..listener::Http2::default()
            },
            drain,
            ..listener::Config::default()
        }
    }
}

/// What the workers share.
pub struct Front {
    /// How it behaves.
    pub settings: Settings,
    /// Where clicks go and misses come from.
    pub store: Store,
    /// The answers.
    pub cache: Arc<Cache>,
    /// Clicks on their way to the store.
    pub click_buffer: ClickBuffer,
    /// Which countries visitors are in, where that is told apart.
    pub geoip: Option<GeoIp>,
    /// Tries at passwords.
    pub attempts: Attempts,
    /// What the workers count of themselves.
    pub metrics: Arc<Metrics>,
    /// Ends them.
    pub shutdown: Shutdown,
}

impl Front {
    /// Hands the clicks of all workers to the store, again and again, until those have `ended`.
    pub async fn flush_until(&self, ended: impl Future<Output = ()>) {
        let mut ended = pin!(ended);
        loop {
            tokio::select! {
                () = tokio::time::sleep(FLUSH) => self.flush().await,
                () = &mut ended => return,
            }
        }
    }

    /// Has the store keep days and hours of clicks for as long as they are to be kept. It may be dropped at any time.
    pub async fn fold_clicks(&self) -> Infallible {
        retention::keep(self.store.clone(), self.settings.click_retention).await
    }

    /// Gives back clicks of limits that this node was granted and nobody needs, where there is somebody to give them to.
    /// It may be dropped at any time.
    pub async fn give_back_grants(&self) -> Infallible {
        match self.store.remote() {
            Some(store) => remote::give_back(&self.cache, &store).await,
            None => std::future::pending().await,
        }
    }

    /// Hands the clicks of all workers to the store; what it cannot take stays for the next time.
    async fn flush(&self) {
        let Some(batch) = self.click_buffer.take(self.geoip.as_ref()) else { return };
        let batch = Arc::new(batch);
        if let Err(error) = self.store.count(Arc::clone(&batch)).await {
            tracing::warn!(%error, "clicks are not in the store yet");
            self.entered(self.click_buffer.enter(Arc::unwrap_or_clone(batch)));
        }
    }

    /// Hands over the last clicks, after the workers have ended.
    pub fn close(&self) {
        if let Some(store) = self.store.remote() {
            let grants = self.cache.take_grants(Grants::Idle(Duration::ZERO));
            if !grants.is_empty()
                && let Err(error) = store.give_back(grants).wait()
            {
                tracing::warn!(%error, "clicks that were granted are not given back: nobody answers them");
            }
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

    /// Says how many clicks found no room, where some did not.
    fn entered(&self, lost: u64) {
        if lost > 0 {
            tracing::error!(clicks = lost, "the store has been away too long: clicks are lost");
        }
    }
}
