//! What a thread that answers visits has for itself, whatever its visitors speak.

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

/// What [visits](Self::visit) are decided by.
pub struct WorkerContext {
    pub front: Arc<Front>,
    pub metrics: Arc<WorkerMetrics>,
    pub reader: Reader,
    pub local_cache: RefCell<LocalCache>,
    pub domains: CachedDomains,
    pub counter: RefCell<Counter>,
    /// The present, at most a tick old.
    pub now: Cell<Timestamp>,
}

impl WorkerContext {
    /// One that has nothing in its cache yet.
    pub fn new(front: Arc<Front>, metrics: Arc<WorkerMetrics>, reader: Reader) -> Self {
        let now = Timestamp::now();
        // Who is asked has a clock, also before that ticks.
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

    /// Looks at the clock, and lets others have what was kept since the last time: clicks, and the snapshot that was
    /// read from. To be called every [`TICK`](super::TICK).
    pub fn tick(&self) {
        self.metrics.tick();
        self.now.set(Timestamp::now());
        if let Err(error) = self.reader.release() {
            tracing::warn!(%error, "cannot let go of a snapshot");
        }
        self.enter_clicks();
    }

    /// The domain that a host is at; none where it is nobody's.
    pub fn domain(&self, host: Host<'_>) -> Option<DomainId> {
        match self.front.settings.unknown_host.site(&self.domains.now(), host) {
            Site::Default => Some(DomainId::DEFAULT),
            Site::Domain(domain) => Some(domain.id),
            Site::Unknown => None,
        }
    }

    /// Enters what this thread has counted in the ledger of all.
    pub fn enter_clicks(&self) {
        if let Some(counted) = self.counter.borrow_mut().take(self.now.get().hour()) {
            self.front.enter_counted(counted);
        }
    }
}
