//! What the workers count of themselves: each its own counters, summed when `/metrics` is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use service::metrics::{Family, LocalCounter, LocalHistogram, Registry, Snapshot};
use service::ready::Heartbeats;

/// The statuses a visit can have.
const STATUSES: [u16; 21] =
    [200, 301, 302, 303, 307, 308, 400, 403, 404, 405, 408, 410, 413, 414, 417, 429, 431, 500, 501, 503, 505];

/// The counters of all workers.
#[derive(Debug)]
pub struct Metrics {
    /// The plain ones, and then those by TLS.
    workers: Vec<Arc<WorkerMetrics>>,
    plain: usize,
    /// Answers that the `listener` crate gave itself, by the index of their status in [`STATUSES`]. Few, and from any
    /// thread.
    refused: [AtomicU64; STATUSES.len()],
    /// The plain workers' signs of life.
    pub beats: Heartbeats,
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
    /// Connections closed because of a PROXY header that was malformed or not trusted.
    pub proxy_refused: LocalCounter,
    /// Connections closed for their silence.
    pub timed_out: LocalCounter,
    /// Times accepting had to pause.
    pub accept_errors: LocalCounter,
    /// Connections open at the last tick.
    pub open: AtomicU64,
    /// Ticks so far.
    pub ticks: LocalCounter,
    turns: LocalCounter,
    /// Ends the worker's clock.
    #[cfg(test)]
    panics: std::sync::atomic::AtomicBool,
}

impl WorkerMetrics {
    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        if let Some(index) = index(status) {
            self.answers[index].add(1);
        }
    }

    /// Counts a tick of the worker's clock.
    pub fn tick(&self) {
        #[cfg(test)]
        assert!(!self.panics.load(Ordering::Relaxed), "as a test asks");
        self.ticks.add(1);
    }

    /// Ends the worker's clock with a panic.
    #[cfg(test)]
    pub fn panic_at_next_tick(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }

    /// Whether this turn is one of those to be timed: every `every`-th is.
    pub fn is_timed(&self, every: u64) -> bool {
        self.turns.add(1);
        self.turns.get().is_multiple_of(every)
    }
}

impl Metrics {
    /// Counters for so many plain workers, and so many that answer by TLS.
    pub fn new(plain: usize, secure: usize) -> Self {
        Self {
            workers: (0..plain + secure).map(|_| Arc::default()).collect(),
            plain,
            refused: Default::default(),
            beats: Heartbeats::new(plain),
        }
    }

    /// How many plain workers there are.
    pub fn workers(&self) -> usize {
        self.plain
    }

    /// The counters of one plain worker.
    pub fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        Arc::clone(&self.workers[index])
    }

    /// The counters of one worker that answers by TLS.
    pub fn secure_worker(&self, index: usize) -> Arc<WorkerMetrics> {
        self.worker(self.plain + index)
    }

    /// The ticks of each plain worker.
    pub fn ticks(&self) -> Vec<u64> {
        self.workers[..self.plain].iter().map(|worker| worker.ticks.get()).collect()
    }

    /// Shows them in `registry`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        let mut answers = Family::new("linerate_links_requests", "Answers on the public listeners");
        for (index, status) in STATUSES.iter().enumerate() {
            let metrics = Arc::clone(self);
            answers = answers.with(&[("status", &status.to_string())], move || {
                let refused = metrics.refused[index].load(Ordering::Relaxed);
                metrics.sum(|worker| worker.answers[index].get()) + refused
            });
        }
        answers.register(registry);

        let metrics = Arc::clone(self);
        Family::new(
            "linerate_links_sampled_read_seconds",
            "Time from a read to the end of the answers to it, of one read in 16",
        )
        .with(&[], move || metrics.workers.iter().map(|worker| worker.latency.snapshot()).sum::<Snapshot>())
        .register(registry);

        Family::new("linerate_links_cache_lookups", "Visits by where their answer came from")
            .with(&[("result", "hit")], self.summing(|worker| worker.hits.get()))
            .with(&[("result", "miss")], self.summing(|worker| worker.misses.get()))
            .register(registry);

        let metrics = Arc::clone(self);
        Family::new(
            "linerate_links_cache_hit_ratio",
            "Part of the visits since the start answered from the cache",
        )
        .with(&[], move || {
            let hits = metrics.sum(|worker| worker.hits.get()) as f64;
            let lookups = hits + metrics.sum(|worker| worker.misses.get()) as f64;
            if lookups > 0.0 { hits / lookups } else { 0.0 }
        })
        .register(registry);

        Family::new(
            "linerate_links_connections",
            "Connections on the plain public listener by what became of them",
        )
        .with(&[("event", "accepted")], self.summing(|worker| worker.accepted.get()))
        .with(&[("event", "shed")], self.summing(|worker| worker.shed.get()))
        .with(&[("event", "proxy_refused")], self.summing(|worker| worker.proxy_refused.get()))
        .with(&[("event", "timed_out")], self.summing(|worker| worker.timed_out.get()))
        .register(registry);
        Family::new("linerate_links_accept_errors", "Times accepting had to pause")
            .with(&[], self.summing(|worker| worker.accept_errors.get()))
            .register(registry);

        let metrics = Arc::clone(self);
        Family::new("linerate_links_connections_open", "Connections open on the plain public listener")
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

impl listener::Refusals for Metrics {
    fn refused(&self, _: &listener::Peer, _: &[u8], status: u16, _: u64) {
        if let Some(index) = index(status) {
            self.refused[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where a status is counted.
fn index(status: u16) -> Option<usize> {
    STATUSES.iter().position(|known| *known == status)
}
