//! The workers' counters, updated once per connection. Of requests, one read in [`TIME_EVERY`] is timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use service::metrics::{Family, LocalCounter, LocalHistogram, Registry, Snapshot};

use crate::limits::{Refused, ResponseBudget};
use crate::peer::Protocol;

/// One in this many reads is timed for [`Metrics::read_times`], since reading the clock twice takes some 50 ns.
const TIME_EVERY: u64 = 16;

/// The counters of all workers. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    workers: Arc<[WorkerMetrics]>,
    answers: Arc<ResponseBudget>,
}

/// The counters of one worker, on its own cache lines. A connection costs a few uncontended additions.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerMetrics {
    protocols: [ProtocolMetrics; Protocol::ALL.len()],
    /// TLS and QUIC handshakes that failed or took too long.
    pub handshake_failures: Count,
    /// Connections closed at once because there were too many.
    pub shed_overall: Count,
    /// Connections closed at once because there were too many from their address.
    pub shed_address: Count,
    /// Requests refused because too many bodies were under way.
    pub shed_bodies: Count,
    /// Connections closed because too many bytes waited for clients to take them.
    pub shed_answers: Count,
    /// Failed accepts, such as for lack of file descriptors.
    pub accept_errors: Count,
    /// Connections closed because the client was too slow, or idle for too long.
    pub timed_out: Count,
    /// Connections closed without a request because their PROXY header was malformed or not trusted.
    pub proxy_refused: Count,
    /// QUIC datagrams that reached this worker and were passed to the worker that owns their connection.
    pub quic_forwarded: Count,
    /// QUIC datagrams that were dropped because too many waited for their owner.
    pub quic_dropped: Count,
    /// Reads of connections with a fast path.
    reads: LocalCounter,
    read_times: LocalHistogram,
}

#[derive(Debug, Default)]
struct ProtocolMetrics {
    accepted: Count,
    open: Count,
}

/// A counter that any thread may change.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn increment(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn decrement(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub struct Open<'m>(&'m ProtocolMetrics);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.decrement();
    }
}

impl WorkerMetrics {
    /// Counts a connection that was not admitted.
    pub fn refused(&self, why: Refused) {
        match why {
            Refused::Overall => self.shed_overall.increment(),
            Refused::Address => self.shed_address.increment(),
        }
    }

    /// Counts a read. Returns the time if this read is to be timed.
    #[inline]
    pub fn read(&self) -> Option<Instant> {
        self.reads.add(1);
        self.reads.get().is_multiple_of(TIME_EVERY).then(Instant::now)
    }

    /// Records that what was read at `started` is answered.
    pub fn answered(&self, started: Instant) {
        self.read_times.record_duration(started.elapsed());
    }
}

impl Metrics {
    /// Counters at zero, for this many workers, which share `answers`.
    pub(crate) fn new(workers: usize, answers: Arc<ResponseBudget>) -> Self {
        Self { workers: (0..workers).map(|_| WorkerMetrics::default()).collect(), answers }
    }

    /// The sum of what clients have yet to take.
    pub(crate) fn answers(&self) -> &Arc<ResponseBudget> {
        &self.answers
    }

    /// The counters of one worker.
    pub fn worker(&self, index: usize) -> &WorkerMetrics {
        &self.workers[index]
    }

    /// Counts a connection as accepted, and as open until the returned guard is dropped.
    pub fn open(&self, worker: usize, protocol: Protocol) -> Open<'_> {
        let metrics = &self.workers[worker].protocols[protocol as usize];
        metrics.accepted.increment();
        metrics.open.increment();
        Open(metrics)
    }

    /// How long the [fast path](crate::FastPath) takes from a read to the end of its answers. One read in 16 is timed.
    pub fn read_times(&self) -> Snapshot {
        self.workers.iter().map(|worker| worker.read_times.snapshot()).sum()
    }

    /// The sum of a counter over all workers.
    pub fn sum(&self, count: impl Fn(&WorkerMetrics) -> &Count) -> u64 {
        self.workers.iter().map(|worker| count(worker).get()).sum()
    }

    /// How many connections of `protocol` were accepted.
    pub fn accepted(&self, protocol: Protocol) -> u64 {
        self.sum(|worker| &worker.protocols[protocol as usize].accepted)
    }

    /// How many connections of `protocol` are open.
    pub fn opened(&self, protocol: Protocol) -> u64 {
        self.sum(|worker| &worker.protocols[protocol as usize].open)
    }

    /// Registers the counters in `registry` as `PREFIX_listener_…`; `prefix` is `linerate_<service>`.
    pub fn register(&self, registry: &mut Registry, prefix: &str) {
        register(&[Arc::new(self.clone())], registry, prefix);
    }
}

/// The counters of connections, for every loop that serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Connections accepted.
    Accepted(Protocol),
    /// Connections open.
    Open(Protocol),
    /// Connections closed at once because there were too many.
    ShedOverall,
    /// The same for too many of one address.
    ShedAddress,
    /// Connections closed because of a PROXY header that was malformed or not trusted.
    ShedProxy,
    /// Requests refused because too many bodies were under way.
    ShedBodies,
    /// Connections closed because too many bytes waited for clients to take them.
    ShedAnswers,
    /// Bytes that wait for clients to take them, beyond what each connection may have anyway.
    AnswerBytes,
    /// Handshakes that failed or took too long.
    HandshakeFailures,
    /// Failed accepts.
    AcceptErrors,
    /// Connections closed because they were too slow or idle for too long.
    TimedOut,
    /// Datagrams passed to the worker that owns their connection.
    QuicForwarded,
    /// Datagrams dropped because too many waited for that worker.
    QuicDropped,
}

/// Counts connections: a listener, or a service's own loop beside it.
pub trait Counts: Send + Sync {
    /// The current count.
    fn count(&self, what: Counted) -> u64;
}

impl Counts for Metrics {
    fn count(&self, what: Counted) -> u64 {
        match what {
            Counted::Accepted(protocol) => self.accepted(protocol),
            Counted::Open(protocol) => self.opened(protocol),
            Counted::ShedOverall => self.sum(|worker| &worker.shed_overall),
            Counted::ShedAddress => self.sum(|worker| &worker.shed_address),
            Counted::ShedProxy => self.sum(|worker| &worker.proxy_refused),
            Counted::ShedBodies => self.sum(|worker| &worker.shed_bodies),
            Counted::ShedAnswers => self.sum(|worker| &worker.shed_answers),
            Counted::AnswerBytes => self.answers.bytes(),
            Counted::HandshakeFailures => self.sum(|worker| &worker.handshake_failures),
            Counted::AcceptErrors => self.sum(|worker| &worker.accept_errors),
            Counted::TimedOut => self.sum(|worker| &worker.timed_out),
            Counted::QuicForwarded => self.sum(|worker| &worker.quic_forwarded),
            Counted::QuicDropped => self.sum(|worker| &worker.quic_dropped),
        }
    }
}

/// Registers the sums of all these counters as `PREFIX_listener_…`; `prefix` is `linerate_<service>`.
pub fn register(all: &[Arc<dyn Counts>], registry: &mut Registry, prefix: &str) {
    let registry = registry.sub_registry_with_prefix(prefix);
    let sum = |what: Counted| {
        let all = all.to_vec();
        move || all.iter().map(|counts| counts.count(what)).sum::<u64>()
    };
    let mut accepted =
        Family::new("listener_accepted", "Connections accepted, when it was clear what they speak");
    let mut open = Family::new("listener_open", "Connections open");
    for protocol in Protocol::ALL {
        let labels = [("protocol", protocol.label())];
        accepted = accepted.with(&labels, sum(Counted::Accepted(protocol)));
        let opened = sum(Counted::Open(protocol));
        open = open.with(&labels, move || opened() as f64);
    }
    accepted.register(registry);
    open.register(registry);

    let mut shed =
        Family::new("listener_shed", "Connections closed, and requests refused, for want of room or trust");
    for (reason, what) in [
        ("overall", Counted::ShedOverall),
        ("address", Counted::ShedAddress),
        ("proxy", Counted::ShedProxy),
        ("bodies", Counted::ShedBodies),
        ("answers", Counted::ShedAnswers),
    ] {
        shed = shed.with(&[("reason", reason)], sum(what));
    }
    shed.register(registry);
    let bytes = sum(Counted::AnswerBytes);
    let help = "Bytes of answers that wait for clients to take them, beyond what each connection may have";
    Family::new("listener_answer_bytes", help).with(&[], move || bytes() as f64).register(registry);
    for (name, help, what) in [
        (
            "listener_handshake_failures",
            "TLS and QUIC handshakes that failed or took too long",
            Counted::HandshakeFailures,
        ),
        (
            "listener_accept_errors",
            "Failures to accept, such as for want of file descriptors",
            Counted::AcceptErrors,
        ),
        ("listener_timed_out", "Connections closed for being slow or idle too long", Counted::TimedOut),
        (
            "listener_quic_forwarded",
            "Datagrams handed to the worker that owns their connection",
            Counted::QuicForwarded,
        ),
        (
            "listener_quic_dropped",
            "Datagrams dropped because their owner had too many waiting",
            Counted::QuicDropped,
        ),
    ] {
        Family::new(name, help).with(&[], sum(what)).register(registry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;

    #[test]
    fn workers_are_summed_and_shown() {
        let answers = ResponseBudget::new(&Limits::default());
        let mut held = answers.held();
        assert!(held.resize(7));
        let metrics = Metrics::new(2, answers);
        let first = metrics.open(0, Protocol::Http1);
        let _second = metrics.open(1, Protocol::Http1);
        drop(first);
        metrics.worker(1).refused(Refused::Address);
        metrics.worker(0).handshake_failures.increment();
        let mut registry = Registry::default();
        metrics.register(&mut registry, "linerate_api");
        let text = service::metrics::encode(&registry);
        for line in [
            "linerate_api_listener_accepted_total{protocol=\"http1\"} 2",
            "linerate_api_listener_open{protocol=\"http1\"} 1.0",
            "linerate_api_listener_open{protocol=\"http3\"} 0.0",
            "linerate_api_listener_shed_total{reason=\"address\"} 1",
            "linerate_api_listener_handshake_failures_total 1",
            "linerate_api_listener_answer_bytes 7.0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn what_several_count_has_one_name() {
        struct Loop;
        impl Counts for Loop {
            fn count(&self, what: Counted) -> u64 {
                if what == Counted::ShedOverall { 5 } else { 0 }
            }
        }
        let metrics = Metrics::new(1, ResponseBudget::new(&Limits::default()));
        metrics.worker(0).refused(Refused::Overall);
        let mut registry = Registry::default();
        register(&[Arc::new(metrics), Arc::new(Loop)], &mut registry, "linerate_files");
        let text = service::metrics::encode(&registry);
        let shown: Vec<_> = text.lines().filter(|line| line.contains("reason=\"overall\"")).collect();
        assert_eq!(shown, ["linerate_files_listener_shed_total{reason=\"overall\"} 6"]);
    }
}
