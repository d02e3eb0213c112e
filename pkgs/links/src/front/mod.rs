//! The public listener: answers `GET|HEAD /{code}` and next to nothing else.
//!
//! One thread a worker, each with a socket, a read connection and counters of its own. A connection
//! starts on the fast [`lane`], which answers plain visits with one read and one write and keeps no
//! buffer between them. What the lane does not know (a password form, HTTP/1.0, a body, an absolute
//! URI) goes the [`slow_path`], which answers once and closes.
//!
//! Visitors by TLS come through the `listener` crate, whose workers call the [`http_service`]. Both ask the same
//! [`visit`](context::WorkerContext::visit), and [`render`] what comes of it in the same words.

mod answer;
mod attempts;
mod context;
mod http_service;
mod lane;
mod metrics;
mod page;
mod render;
pub mod request;
mod response;
mod retention;
mod slow_path;
#[cfg(test)]
mod tests;
mod unlock;
mod visit;
mod worker;

use std::net::TcpListener;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use listener::ConnectionLimit;
use service::proxies::Proxies;
use service::shutdown::Shutdown;

use crate::cache::Cache;
use crate::clicks::Ledger;
use crate::store::{ClickBatch, Error, Store};

pub use attempts::Attempts;
pub use http_service::{HttpService, Secured};
pub use metrics::Metrics;
pub use page::Refusal;
#[doc(hidden)]
pub use slow_path::body;
#[doc(hidden)]
pub use unlock::password_of;

/// The longest request head, in bytes. Browsers and proxies stay below 8 KiB by default.
pub const MAX_HEAD_BYTES: usize = 8 * 1024;

/// The most fields a head may have; browsers send some 20.
pub const MAX_FIELDS: usize = 64;

/// The longest body that visitors by TLS may announce, in bytes. Forms are shorter, and what is longer than they are is
/// still refused in the same words as in the clear; beyond, it is not listened to.
pub const MAX_BODY_BYTES: u64 = 16 * 1024;

/// How the public listener behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where `/` redirects to; 404 where absent.
    pub root_target: Option<String>,
    /// Where `/favicon.ico` redirects to; 404 where absent.
    pub favicon_target: Option<String>,
    /// The text of `/robots.txt`.
    pub robots: String,
    /// Whether a redirect carries a small page with the link, for clients that do not follow.
    pub redirect_body: bool,
    /// How long a redirect may be cached privately, in seconds. 0 keeps every click countable.
    pub redirect_max_age: u32,
    /// Which proxies are in front, by whom visitors come.
    pub proxies: Proxies,
    /// Connections of all workers, and of the TLS listener; further ones are closed at once.
    pub connections: Arc<ConnectionLimit>,
    /// A request head must be complete this long after its first byte.
    pub head_timeout: Duration,
    /// A connection may be idle this long between requests.
    pub idle_timeout: Duration,
    /// At shutdown, requests in flight have this long.
    pub drain_timeout: Duration,
    /// For how many days before today clicks are told apart by day; for ever where absent.
    pub click_retention: Option<NonZero<u32>>,
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
    pub ledger: Ledger,
    /// Tries at passwords.
    pub attempts: Attempts,
    /// What the workers count of themselves.
    pub metrics: Arc<Metrics>,
    /// Ends them.
    pub shutdown: Shutdown,
}

impl Front {
    /// Starts one thread per set of sockets: `listeners[i]` are those of worker `i`. With `pinned`,
    /// worker `i` stays on the `i`-th CPU of this process. A thread ends when its connections have drained.
    /// One that ends before it was told to takes all others down with it, and its handle's `join` fails.
    pub fn start(
        self: &Arc<Self>,
        listeners: Vec<Vec<TcpListener>>,
        pinned: bool,
    ) -> Result<Vec<JoinHandle<()>>, Error> {
        let mut threads = Vec::new();
        for (index, sockets) in listeners.into_iter().enumerate() {
            let front = Arc::clone(self);
            let reader = self.store.reader()?;
            let thread = std::thread::Builder::new()
                .name(service::workers::name("links", index))
                .spawn(move || {
                    if pinned && !service::workers::pin(index) {
                        tracing::warn!(worker = index, "cannot pin a worker to its CPU");
                    }
                    let _all = TakesDown(&front.shutdown);
                    worker::run(&front, index, sockets, reader);
                    front.metrics.beats.done(index);
                })
                .expect("the system can start a thread");
            threads.push(thread);
        }
        Ok(threads)
    }

    /// Hands the clicks of all workers to the store; what it cannot take stays for the next time.
    pub async fn flush(&self) {
        let Some(batch) = self.ledger.take() else { return };
        let batch = Arc::new(batch);
        if let Err(error) = self.store.count(Arc::clone(&batch)).await {
            tracing::warn!(%error, "clicks are not in the store yet");
            self.enter(Arc::unwrap_or_clone(batch));
        }
    }

    /// Hands over the last clicks, after the workers have ended.
    pub fn close(&self) {
        let Some(batch) = self.ledger.take() else { return };
        let clicks = batch.total();
        if let Err(error) = self.store.count(Arc::new(batch)).wait() {
            tracing::error!(%error, clicks, "the last clicks are lost");
        }
    }

    fn enter(&self, batch: ClickBatch) {
        let lost = self.ledger.enter(batch);
        if lost > 0 {
            tracing::error!(clicks = lost, "the store has been away too long: clicks are lost");
        }
    }
}

/// Shuts everything down where a worker panics: a service that lost one would answer some of its clients only, for
/// nobody knows how long.
struct TakesDown<'f>(&'f Shutdown);

impl Drop for TakesDown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a worker ended: so does the service");
            self.0.fail();
        }
    }
}
