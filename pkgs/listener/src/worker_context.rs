//! What all that runs on one worker shares.

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

/// What is received of a body that is not announced and has no meaning, as with GET (RFC 9110, section 9.3.1), in bytes.
/// By HTTP/2 and 3, the end of a request that comes by itself looks like one.
const MEANINGLESS_BYTES: u64 = 16 * 1024;

/// What the connections of a worker share.
#[derive(Debug)]
pub struct WorkerContext {
    /// Its number.
    pub index: usize,
    /// How the listener behaves.
    pub config: Arc<Config>,
    /// The connections of all workers.
    pub connections: Arc<ConnectionLimiter>,
    /// The request bodies of all workers.
    pub bodies: Arc<BodyBudget>,
    /// What of the answers of all workers waits for clients.
    pub answers: Arc<ResponseBudget>,
    /// What all workers count.
    pub metrics: Metrics,
    /// Whether to go on.
    pub drain: Drain,
    /// Its connections by TCP and Unix sockets, and the time.
    pub registry: ConnectionRegistry,
    /// Certificates.
    pub tls: Option<Tls>,
    /// That all workers go on.
    pub heartbeats: Heartbeats,
    /// Its lines of the access log, where there is one.
    pub log: Option<Lines>,
}

impl WorkerContext {
    /// What this worker counts.
    pub fn counts(&self) -> &WorkerMetrics {
        self.metrics.worker(self.index)
    }

    /// Room for a request's body of so many bytes, or of an unknown number of them. It may not have more.
    ///
    /// # Errors
    /// When it is too long, or too many are under way.
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

    /// The answer to what is refused, of which whoever wants to know is told.
    pub fn refuse(&self, refusal: Refusal, record: &mut RequestRecord) -> Response<Bytes> {
        if let Some(refusals) = &self.config.refusals {
            refusals.refused(refusal.status());
        }
        refusal.response(record)
    }

    /// Hands on what was logged.
    pub fn flush_log(&self) {
        if let Some(lines) = &self.log {
            lines.flush();
        }
    }

    /// Ends the connection that has waited for its client for longest, where there is one.
    pub fn make_room(&self) -> bool {
        let made = self.registry.make_room();
        if made {
            self.counts().timed_out.increment();
        }
        made
    }

    /// Sees to deadlines, hands on what was logged, and shows that it goes on. To be called every [`TICK`](crate::lifecycle::TICK).
    pub fn tick(&self) {
        self.registry.tick();
        self.flush_log();
        self.heartbeats.beat(self.index);
    }
}
