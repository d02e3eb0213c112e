//! What the workers count of themselves: each its own counters, summed when `/metrics` is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use service::metrics::{Family, LocalCounter, Registry};

/// The statuses an answer can have.
const STATUSES: [u16; 18] =
    [200, 204, 206, 301, 304, 400, 403, 404, 405, 408, 412, 414, 416, 429, 431, 500, 501, 503];

/// The counters of all workers.
#[derive(Debug)]
pub struct Metrics {
    workers: Vec<Arc<WorkerMetrics>>,
}

/// The counters of one worker; written by its thread alone.
#[derive(Debug, Default)]
pub struct WorkerMetrics {
    /// Answers, by the index of their status in [`STATUSES`].
    answers: [LocalCounter; STATUSES.len()],
    /// Bytes sent, heads and bodies.
    pub sent: LocalCounter,
    /// Connections accepted.
    pub accepted: LocalCounter,
    /// Connections closed at once, for there were too many.
    pub shed: LocalCounter,
    /// Connections closed for their silence.
    pub timed_out: LocalCounter,
    /// Answers cut short: the client or the file was gone.
    pub cut: LocalCounter,
    /// Turns of transfers that had to wait for the disk.
    pub cold: LocalCounter,
    /// Files read ahead for a manifest.
    pub prefetched: LocalCounter,
    /// Times accepting had to pause.
    pub accept_errors: LocalCounter,
    /// Lines of the access log that were dropped.
    pub log_dropped: LocalCounter,
    /// Connections open at the last tick.
    pub open: AtomicU64,
    /// Entries of the cache at the last tick.
    pub open_files: AtomicU64,
}

impl WorkerMetrics {
    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        if let Some(index) = STATUSES.iter().position(|known| *known == status) {
            self.answers[index].add(1);
        }
    }
}

impl Metrics {
    /// Counters for this many workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Arc::default()).collect() }
    }

    /// The counters of one worker.
    pub fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        Arc::clone(&self.workers[index])
    }

    /// Shows them in `registry`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        let mut answers = Family::new("files_requests", "Answers on the plain listener");
        for (index, status) in STATUSES.iter().enumerate() {
            let count = self.summing(move |worker| worker.answers[index].get());
            answers = answers.with(&[("status", &status.to_string())], count);
        }
        answers.register(registry);
        Family::new("files_sent_bytes", "Bytes sent on the plain listener, heads included")
            .with(&[], self.summing(|worker| worker.sent.get()))
            .register(registry);
        Family::new("files_connections", "Connections on the plain listener by what became of them")
            .with(&[("event", "accepted")], self.summing(|worker| worker.accepted.get()))
            .with(&[("event", "shed")], self.summing(|worker| worker.shed.get()))
            .with(&[("event", "timed_out")], self.summing(|worker| worker.timed_out.get()))
            .with(&[("event", "cut")], self.summing(|worker| worker.cut.get()))
            .register(registry);
        Family::new("files_cold_reads", "Turns of transfers that had to wait for the disk")
            .with(&[], self.summing(|worker| worker.cold.get()))
            .register(registry);
        Family::new("files_prefetches", "Files read ahead for a manifest")
            .with(&[], self.summing(|worker| worker.prefetched.get()))
            .register(registry);
        Family::new("files_accept_errors", "Times accepting had to pause")
            .with(&[], self.summing(|worker| worker.accept_errors.get()))
            .register(registry);
        Family::new("files_access_log_dropped", "Lines of the access log that the disk did not keep up with")
            .with(&[], self.summing(|worker| worker.log_dropped.get()))
            .register(registry);
        let open = self.summing(|worker| worker.open.load(Ordering::Relaxed));
        Family::new("files_connections_open", "Connections open on the plain listener")
            .with(&[], move || open() as f64)
            .register(registry);
        let files = self.summing(|worker| worker.open_files.load(Ordering::Relaxed));
        Family::new("files_cache_entries", "Paths the workers keep open")
            .with(&[], move || files() as f64)
            .register(registry);
    }

    /// A reading that sums one value over the workers.
    fn summing(
        self: &Arc<Self>,
        value: impl Fn(&WorkerMetrics) -> u64 + Send + Sync + 'static,
    ) -> impl Fn() -> u64 + Send + Sync + 'static {
        let metrics = Arc::clone(self);
        move || metrics.workers.iter().map(|worker| value(worker)).sum()
    }
}
