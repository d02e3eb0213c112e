//! What the workers count of themselves: each its own counters, summed when `/metrics` is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use service::metrics::{Family, LocalCounter, LocalHistogram, Registry, Snapshot};

/// The statuses a visit can have.
const STATUSES: [u16; 15] = [200, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 413, 429, 431, 503];

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
    /// Time from a read to the end of the write that answers it.
    pub latency: LocalHistogram,
    /// Visits answered from the cache.
    pub hits: LocalCounter,
    /// Visits that read the store.
    pub misses: LocalCounter,
    /// Connections accepted.
    pub accepted: LocalCounter,
    /// Connections closed at once, for there were too many.
    pub shed: LocalCounter,
    /// Connections closed for their silence.
    pub timed_out: LocalCounter,
    /// Times accepting had to pause.
    pub accept_errors: LocalCounter,
    /// Connections open at the last tick.
    pub open: AtomicU64,
    /// Ticks so far: a worker that stops ticking is stuck.
    pub ticks: LocalCounter,
    turns: LocalCounter,
}

impl WorkerMetrics {
    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        if let Some(index) = STATUSES.iter().position(|known| *known == status) {
            self.answers[index].add(1);
        }
    }

    /// Whether this turn is one of those to be timed: every `every`-th is.
    pub fn is_timed(&self, every: u64) -> bool {
        self.turns.add(1);
        self.turns.get().is_multiple_of(every)
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

    /// The ticks of each worker.
    pub fn ticks(&self) -> Vec<u64> {
        self.workers.iter().map(|worker| worker.ticks.get()).collect()
    }

    /// Shows them in `registry`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        let mut answers = Family::new("links_requests", "Answers on the public listener");
        for (index, status) in STATUSES.iter().enumerate() {
            answers = answers.with(
                &[("status", &status.to_string())],
                self.summing(move |worker| worker.answers[index].get()),
            );
        }
        answers.register(registry);

        let metrics = Arc::clone(self);
        Family::new("links_request_seconds", "Time from a read to the end of its answer, one read in 16")
            .with(&[], move || {
                metrics.workers.iter().map(|worker| worker.latency.snapshot()).sum::<Snapshot>()
            })
            .register(registry);

        Family::new("links_cache_lookups", "Visits by where their answer came from")
            .with(&[("result", "hit")], self.summing(|worker| worker.hits.get()))
            .with(&[("result", "miss")], self.summing(|worker| worker.misses.get()))
            .register(registry);

        let metrics = Arc::clone(self);
        Family::new("links_cache_hit_ratio", "Part of the visits since the start answered from the cache")
            .with(&[], move || {
                let hits = metrics.sum(|worker| worker.hits.get()) as f64;
                let lookups = hits + metrics.sum(|worker| worker.misses.get()) as f64;
                if lookups > 0.0 { hits / lookups } else { 0.0 }
            })
            .register(registry);

        Family::new("links_connections", "Connections on the public listener by what became of them")
            .with(&[("event", "accepted")], self.summing(|worker| worker.accepted.get()))
            .with(&[("event", "shed")], self.summing(|worker| worker.shed.get()))
            .with(&[("event", "timed_out")], self.summing(|worker| worker.timed_out.get()))
            .register(registry);
        Family::new("links_accept_errors", "Times accepting had to pause")
            .with(&[], self.summing(|worker| worker.accept_errors.get()))
            .register(registry);

        let metrics = Arc::clone(self);
        Family::new("links_connections_open", "Connections open on the public listener")
            .with(&[], move || metrics.sum(|worker| worker.open.load(Ordering::Relaxed)) as f64)
            .register(registry);
    }

    /// A reading that sums one value over the workers.
    fn summing(
        self: &Arc<Self>,
        value: impl Fn(&WorkerMetrics) -> u64 + Send + Sync + 'static,
    ) -> impl Fn() -> u64 + Send + Sync + 'static {
        let metrics = Arc::clone(self);
        move || metrics.sum(&value)
    }

    fn sum(&self, value: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        self.workers.iter().map(|worker| value(worker)).sum()
    }
}
