//! The state that everything on one worker shares.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use service::access_log::Lines;
use service::ready::Heartbeats;

use crate::config::Config;
use crate::lifecycle::ConnectionRegistry;
use crate::lifecycle::drain::Drain;
use crate::limits::{BodyBudget, BodyReservation, ConnectionLimiter, ResponseBudget};
use crate::metrics::{Metrics, WorkerMetrics};
use crate::response::{Refusal, RequestRecord};
use crate::tls::Tls;

/// The most bytes of a body that has no announced length and no defined meaning, such as that of a GET (RFC 9110,
/// section 9.3.1). In HTTP/2 and 3, a request whose end arrives separately looks as if it had such a body.
const MEANINGLESS_BYTES: u64 = 16 * 1024;

/// The state that a worker's connections share.
#[derive(Debug)]
pub struct WorkerContext {
    /// The worker's number.
    pub index: usize,
    /// The listener's configuration.
    pub config: Arc<Config>,
    /// The connections of all workers.
    pub connections: Arc<ConnectionLimiter>,
    /// The request bodies of all workers.
    pub bodies: Arc<BodyBudget>,
    /// Answers of all workers that wait for clients.
    pub answers: Arc<ResponseBudget>,
    /// The counters of all workers.
    pub metrics: Metrics,
    /// The phase of shutdown.
    pub drain: Drain,
    /// Its TCP and Unix connections, and the time.
    pub registry: ConnectionRegistry,
    /// Certificates.
    pub tls: Option<Tls>,
    /// The heartbeats of all workers.
    pub heartbeats: Heartbeats,
    /// Its lines of the access log, if there is one.
    pub log: Option<Lines>,
}

impl WorkerContext {
    /// The counters of this worker.
    pub fn counts(&self) -> &WorkerMetrics {
        self.metrics.worker(self.index)
    }

    /// Reserves room for a request's body of this length, or of unknown length. The body may not exceed it.
    ///
    /// # Errors
    /// When it is too long, or too many bodies are being received.
    pub fn reserve(&self, method: &Method, bytes: Option<u64>) -> Result<BodyReservation, Refusal> {
        let most = self.config.limits.body_bytes;
        if bytes.is_some_and(|bytes| bytes > most) {
            return Err(Refusal::BodyTooLarge);
        }
        let unannounced = if method.is_safe() { most.min(MEANINGLESS_BYTES) } else { most };
        self.bodies.reserve(bytes.unwrap_or(unannounced)).ok_or_else(|| {
            self.counts().shed_bodies.increment();
            Refusal::Busy
        })
    }

    /// The answer to a refused request, which is reported to [`Config::refusals`](crate::Config::refusals).
    pub fn refuse(&self, refusal: Refusal, record: &mut RequestRecord) -> Response<Bytes> {
        if let Some(refusals) = &self.config.refusals {
            refusals.refused(refusal.status());
        }
        refusal.response(record)
    }

    /// Passes on the log lines.
    pub fn flush_log(&self) {
        if let Some(lines) = &self.log {
            lines.flush();
        }
    }

    /// Ends the connection that has waited longest for its client, if there is one.
    pub fn make_room(&self) -> bool {
        let made = self.registry.make_room();
        if made {
            self.counts().timed_out.increment();
        }
        made
    }

    /// Checks deadlines, passes on log lines, and beats. Call this every [`TICK`](crate::lifecycle::TICK).
    pub fn tick(&self) {
        self.registry.tick();
        self.flush_log();
        self.heartbeats.beat(self.index);
    }
}
