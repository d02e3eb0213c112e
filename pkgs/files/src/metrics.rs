//! The workers' counters: each worker has its own, and `/metrics` sums them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use listener::Protocol;
use listener::metrics::{Counted, Counts};
use service::metrics::{Family, LocalCounter, Registry};

/// The statuses an answer can have. Should it have another, it counts as [`OTHER`].
const STATUSES: [u16; 29] = [
    200, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 408, 412, 413, 414, 416, 417, 421,
    429, 431, 500, 501, 502, 503, 504, 505,
];

/// What is shown as the status of answers that have none of [`STATUSES`].
const OTHER: &str = "other";

/// Which listener a worker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// The plain listener.
    Plain,
    /// The TLS listener.
    Tls,
}

impl ListenerKind {
    const ALL: [Self; 2] = [Self::Plain, Self::Tls];

    /// Its label in the metrics.
    fn label(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "tls",
        }
    }
}

/// The counters of all workers.
#[derive(Debug, Default)]
pub struct Metrics {
    workers: Mutex<Vec<(ListenerKind, Arc<WorkerMetrics>)>>,
}

/// Connections without TLS, and those that the kernel encrypts. The TLS listener counts the others.
impl Counts for Metrics {
    fn count(&self, what: Counted) -> u64 {
        self.sum(None, |worker| match what {
            Counted::Accepted(Protocol::Http1) => worker.accepted.get() + worker.offloaded.get(),
            Counted::Open(Protocol::Http1) => worker.open.load(Ordering::Relaxed),
            Counted::ShedOverall => worker.shed.get(),
            Counted::ShedAddress => worker.shed_address.get(),
            Counted::ShedProxy => worker.proxy_refused.get(),
            Counted::AcceptErrors => worker.accept_errors.get(),
            Counted::TimedOut => worker.timed_out.get(),
            _ => 0,
        })
    }
}

/// The counters of one worker; written by its thread alone.
#[derive(Debug, Default)]
pub struct WorkerMetrics {
    /// Answers, by the index of their status in [`STATUSES`]; the last are those of [`OTHER`].
    answers: [LocalCounter; STATUSES.len() + 1],
    /// Bytes sent, heads and bodies.
    pub sent: LocalCounter,
    /// Answers by TLS that were given at once, from copies in memory.
    pub fast: LocalCounter,
    /// Connections taken over from the TLS listener, since the kernel encrypts them.
    pub offloaded: LocalCounter,
    /// Connections accepted.
    pub accepted: LocalCounter,
    /// Connections closed at once because there were too many.
    pub shed: LocalCounter,
    /// The same for too many of one address.
    pub shed_address: LocalCounter,
    /// Connections closed because of a PROXY header that was malformed or not trusted.
    pub proxy_refused: LocalCounter,
    /// Connections closed because of silence.
    pub timed_out: LocalCounter,
    /// Answers cut short because the client or the file was gone.
    pub cut: LocalCounter,
    /// Turns of transfers that had to wait for the disk.
    pub cold: LocalCounter,
    /// Reads of the ring, as of the last tick.
    pub ring_reads: AtomicU64,
    /// Files read ahead for a manifest.
    pub prefetched: LocalCounter,
    /// How often accepting had to pause.
    pub accept_errors: LocalCounter,
    /// Connections open at the last tick.
    pub open: AtomicU64,
    /// Entries of the cache at the last tick.
    pub open_files: AtomicU64,
}

impl WorkerMetrics {
    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        let index = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len());
        self.answers[index].add(1);
    }
}

impl Metrics {
    /// The counters of one more worker.
    pub fn worker(&self, side: ListenerKind) -> Arc<WorkerMetrics> {
        let metrics = Arc::<WorkerMetrics>::default();
        self.lock().push((side, Arc::clone(&metrics)));
        metrics
    }

    /// Shows them in `registry`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        let mut answers = Family::new("linerate_files_requests", "Answers by status");
        let mut sent = Family::new(
            "linerate_files_sent_bytes",
            "Bytes sent before encryption: with heads on the plain listener and where the kernel encrypts, else of bodies",
        );
        let mut cut =
            Family::new("linerate_files_answers_cut", "Answers cut short: the client or the file was gone");
        for side in ListenerKind::ALL {
            let listener = ("listener", side.label());
            let statuses = STATUSES.iter().map(u16::to_string).chain([OTHER.to_owned()]);
            for (index, status) in statuses.enumerate() {
                let count = self.summing(Some(side), move |worker| worker.answers[index].get());
                answers = answers.with(&[listener, ("status", &status)], count);
            }
            sent = sent.with(&[listener], self.summing(Some(side), |worker| worker.sent.get()));
            cut = cut.with(&[listener], self.summing(Some(side), |worker| worker.cut.get()));
        }
        answers.register(registry);
        sent.register(registry);
        cut.register(registry);
        Family::new(
            "linerate_files_tls_fast_answers",
            "Answers by TLS given at once: small files from memory",
        )
        .with(&[], self.summing(None, |worker| worker.fast.get()))
        .register(registry);
        Family::new("linerate_files_offloaded_connections", "Connections of TLS that the kernel encrypts")
            .with(&[], self.summing(None, |worker| worker.offloaded.get()))
            .register(registry);
        Family::new("linerate_files_cold_reads", "Turns of transfers that had to wait for the disk")
            .with(&[], self.summing(None, |worker| worker.cold.get()))
            .register(registry);
        let reads = self.summing(None, |worker| worker.ring_reads.load(Ordering::Relaxed));
        Family::new("linerate_files_uring_reads", "Reads of files by io_uring")
            .with(&[], reads)
            .register(registry);
        Family::new("linerate_files_prefetches", "Files read ahead for a manifest")
            .with(&[], self.summing(None, |worker| worker.prefetched.get()))
            .register(registry);
        let files = self.summing(None, |worker| worker.open_files.load(Ordering::Relaxed));
        Family::new("linerate_files_cache_entries", "Paths the workers keep open")
            .with(&[], move || files() as f64)
            .register(registry);
    }

    /// A reading that sums one value over the workers of a side, or of both.
    fn summing(
        self: &Arc<Self>,
        side: Option<ListenerKind>,
        value: impl Fn(&WorkerMetrics) -> u64 + Send + Sync + 'static,
    ) -> impl Fn() -> u64 + Send + Sync + 'static {
        let metrics = Arc::clone(self);
        move || metrics.sum(side, &value)
    }

    fn sum(&self, side: Option<ListenerKind>, value: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        let workers = self.lock();
        let counted = workers.iter().filter(|(of, _)| side.is_none_or(|side| side == *of));
        counted.map(|(_, worker)| value(worker)).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ListenerKind, Arc<WorkerMetrics>)>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use listener::Refusal;

    use super::*;
    use crate::site::errors::HttpError;

    #[test]
    fn every_answer_is_counted_by_its_status() {
        let errors = [
            HttpError::Path,
            HttpError::Query,
            HttpError::Archive,
            HttpError::ArchiveTooLarge,
            HttpError::ArchivesBusy,
            HttpError::Denied,
            HttpError::Unauthorized,
            HttpError::Unsigned,
            HttpError::Referrer,
            HttpError::Missing,
            HttpError::Method,
            HttpError::PreconditionFailed,
            HttpError::Range,
            HttpError::Misdirected,
            HttpError::TooMany,
            HttpError::Tries,
            HttpError::Busy,
            HttpError::Failed,
            HttpError::OriginFailed,
            HttpError::OriginSlow,
            HttpError::Exhausted,
        ];
        let refusals = [
            Refusal::Malformed(""),
            Refusal::NotTls,
            Refusal::Slow,
            Refusal::BodyTooLarge,
            Refusal::TargetTooLong,
            Refusal::Expectation,
            Refusal::HeadTooLarge,
            Refusal::Panicked,
            Refusal::Method,
            Refusal::Coding,
            Refusal::Busy,
            Refusal::Version,
        ];
        let refused = errors.into_iter().chain(refusals.map(HttpError::Protocol)).map(HttpError::status);
        let files = [200, 204, 206, 304];
        let redirects = [301, 302, 303, 307, 308];
        let metrics = Arc::<Metrics>::default();
        let worker = metrics.worker(ListenerKind::Plain);
        let mut all: Vec<u16> = files.into_iter().chain(redirects).chain(refused).collect();
        all.iter().for_each(|status| worker.answered(*status));
        worker.answered(418);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let shown = service::metrics::encode(&registry);
        all.sort_unstable();
        let counts = all.chunk_by(|one, next| one == next).map(|same| (same[0].to_string(), same.len()));
        for (status, count) in counts.chain([(OTHER.to_owned(), 1)]) {
            let line =
                format!("linerate_files_requests_total{{listener=\"plain\",status=\"{status}\"}} {count}\n");
            assert!(shown.contains(&line), "{line}{shown}");
        }
    }
}
