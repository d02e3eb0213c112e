//! The state of a thread that answers visits, for all protocols.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::cache::LocalCache;
use crate::clicks::Counter;
use crate::domains::{CachedDomains, DomainId};
use crate::store::Reader;
use crate::when::Timestamp;

use super::Front;
use super::host::{Host, Site};
use super::metrics::WorkerMetrics;

/// The state with which a thread decides [visits](Self::visit).
pub struct WorkerContext {
    pub front: Arc<Front>,
    pub metrics: Arc<WorkerMetrics>,
    pub reader: Reader,
    pub local_cache: RefCell<LocalCache>,
    pub domains: CachedDomains,
    pub counter: RefCell<Counter>,
    /// The current time, at most a tick old.
    pub now: Cell<Timestamp>,
}

impl WorkerContext {
    /// A context with an empty cache.
    pub fn new(front: Arc<Front>, metrics: Arc<WorkerMetrics>, reader: Reader) -> Self {
        let now = Timestamp::now();
        // The worker counts as running before its first tick, too.
        metrics.tick();
        Self {
            local_cache: RefCell::new(LocalCache::new(Arc::clone(&front.cache))),
            counter: RefCell::new(Counter::new(now.hour())),
            domains: CachedDomains::new(front.store.shared_domains()),
            now: Cell::new(now),
            front,
            metrics,
            reader,
        }
    }

    /// Updates the clock, passes on clicks, and releases the read snapshot. Call this every [`TICK`](super::TICK).
    pub fn tick(&self) {
        self.metrics.tick();
        self.now.set(Timestamp::now());
        if let Err(error) = self.reader.release() {
            tracing::warn!(%error, "cannot let go of a snapshot");
        }
        self.enter_clicks();
    }

    /// The domain of a host; `None` if the host belongs to no domain.
    pub fn domain(&self, host: Host<'_>) -> Option<DomainId> {
        match self.front.settings.unknown_host.site(&self.domains.now(), host) {
            Site::Default => Some(DomainId::DEFAULT),
            Site::Domain(domain) => Some(domain.id),
            Site::Unknown => None,
        }
    }

    /// Passes this thread's clicks on to the shared buffer.
    pub fn enter_clicks(&self) {
        if let Some(counted) = self.counter.borrow_mut().take(self.now.get().hour()) {
            self.front.enter_counted(counted);
        }
    }
}
