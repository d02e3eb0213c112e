//! The workers' counters: each worker has its own, and `/metrics` sums them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use service::metrics::{Family, LocalCounter, Registry};

/// The possible statuses of a visit.
const STATUSES: [u16; 21] =
    [200, 301, 302, 303, 307, 308, 400, 403, 404, 405, 408, 410, 413, 414, 417, 429, 431, 500, 501, 503, 505];

/// The counters of all workers.
#[derive(Debug)]
pub struct Metrics {
    workers: Vec<Arc<WorkerMetrics>>,
    /// Answers that the `listener` crate gives itself, by the index of their status in [`STATUSES`]. They are few, and
    /// any thread may count them.
    refused: [AtomicU64; STATUSES.len()],
}

/// The counters of one worker. Only its thread writes them.
#[derive(Debug, Default)]
pub struct WorkerMetrics {
    /// Answers, by the index of their status in [`STATUSES`].
    answers: [LocalCounter; STATUSES.len()],
    /// Visits answered from the cache.
    pub hits: LocalCounter,
    /// Visits that read the store.
    pub misses: LocalCounter,
    /// Ticks so far; zero before the worker's first visit.
    ticks: LocalCounter,
    /// Whether the next tick panics.
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
}

impl Metrics {
    /// Counters for this many workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Arc::default()).collect(), refused: Default::default() }
    }

    /// The counters of one worker.
    pub fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        Arc::clone(&self.workers[index])
    }

    /// How often each worker has passed on its clicks; zero before its first visit.
    pub fn ticks(&self) -> Vec<u64> {
        self.workers.iter().map(|worker| worker.ticks.get()).collect()
    }

    /// Registers the counters in `registry`, together with the times of the listener's fast path.
    pub fn register(self: &Arc<Self>, listener: &listener::metrics::Metrics, registry: &mut Registry) {
        let mut answers = Family::new("linerate_links_requests", "Answers on the public listeners");
        for (index, status) in STATUSES.iter().enumerate() {
            let metrics = Arc::clone(self);
            answers = answers.with(&[("status", &status.to_string())], move || {
                let refused = metrics.refused[index].load(Ordering::Relaxed);
                metrics.sum(|worker| worker.answers[index].get()) + refused
            });
        }
        answers.register(registry);

        let read = listener.clone();
        Family::new(
            "linerate_links_sampled_read_seconds",
            "Time from a read to the end of the answers to it, of one read in 16",
        )
        .with(&[], move || read.read_times())
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
    }

    /// A metric that sums one value over the workers.
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
    fn refused(&self, status: u16) {
        if let Some(index) = index(status) {
            self.refused[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The index of a status's counter. Needed for each answer, so it comes from a table instead of a search.
#[inline]
fn index(status: u16) -> Option<usize> {
    /// By status. Statuses that are not counted have an index beyond [`STATUSES`].
    static INDICES: [u8; 600] = {
        let mut indices = [u8::MAX; 600];
        let mut index = 0;
        while index < STATUSES.len() {
            indices[STATUSES[index] as usize] = index as u8;
            index += 1;
        }
        indices
    };
    let index = usize::from(*INDICES.get(usize::from(status))?);
    (index < STATUSES.len()).then_some(index)
}
