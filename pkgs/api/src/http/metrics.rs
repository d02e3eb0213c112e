//! Counters of requests: by operation, status class and duration.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::StatusCode;
use service::metrics::{Family, LocalCounter, LocalHistogram, Registry};

/// The operation of a request, according to the table of [`routes`](super::routes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read a user.
    Get,
    /// Create a user.
    Create,
    /// Replace or patch a user.
    Change,
    /// Delete a user.
    Delete,
    /// A page of users.
    List,
    /// The number of users.
    Count,
    /// Many users at once.
    Batch,
    /// Check a document.
    Validate,
    /// Anything else: keys, the description, and unknown paths.
    Other,
}

impl Operation {
    /// All operations, in the order of their numbers.
    const ALL: [(Self, &'static str); 9] = [
        (Self::Get, "get"),
        (Self::Create, "create"),
        (Self::Change, "change"),
        (Self::Delete, "delete"),
        (Self::List, "list"),
        (Self::Count, "count"),
        (Self::Batch, "batch"),
        (Self::Validate, "validate"),
        (Self::Other, "other"),
    ];
}

/// Classes of status codes: 2xx to 5xx.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The counters of one thread.
#[derive(Default)]
struct Counted {
    statuses: [[LocalCounter; CLASSES.len()]; Operation::ALL.len()],
    times: [LocalHistogram; Operation::ALL.len()],
}

/// The counters of all threads. Clones share them.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Vec<Arc<Counted>>>>);

impl Metrics {
    /// Counts a request that started at `begin` and is answered now.
    #[inline]
    pub fn count(&self, operation: Operation, status: StatusCode, begin: Instant) {
        thread_local! {
            static MINE: RefCell<Vec<(usize, Arc<Counted>)>> = const { RefCell::new(Vec::new()) };
        }
        let whose = Arc::as_ptr(&self.0) as usize;
        MINE.with_borrow_mut(|mine| {
            let known = mine.iter().position(|(owner, _)| *owner == whose);
            let at = known.unwrap_or_else(|| {
                mine.push((whose, self.thread()));
                mine.len() - 1
            });
            mine[at].1.count(operation, status, begin);
        });
    }

    /// Counters for one more thread.
    #[cold]
    fn thread(&self) -> Arc<Counted> {
        let counted = Arc::<Counted>::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counted));
        counted
    }

    /// Registers them in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let mut statuses =
            Family::new("linerate_api_requests", "Requests answered, by operation and class of status");
        let mut times = Family::new(
            "linerate_api_request_seconds",
            "Time from a request's head to its answer, by operation",
        );
        for (index, (_, operation)) in Operation::ALL.into_iter().enumerate() {
            for (class, status) in CLASSES.into_iter().enumerate() {
                let all = self.clone();
                statuses = statuses.with(&[("operation", operation), ("status", status)], move || {
                    all.sum(|counted| counted.statuses[index][class].get())
                });
            }
            let all = self.clone();
            times = times.with(&[("operation", operation)], move || {
                all.sum(|counted| counted.times[index].snapshot())
            });
        }
        statuses.register(registry);
        times.register(registry);
    }

    fn sum<T: std::iter::Sum>(&self, read: impl Fn(&Counted) -> T) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|counted| read(counted)).sum()
    }
}

impl Counted {
    #[inline]
    fn count(&self, operation: Operation, status: StatusCode, begin: Instant) {
        let class = usize::from(status.as_u16() / 100).clamp(2, 5) - 2;
        self.statuses[operation as usize][class].add(1);
        self.times[operation as usize].record_duration(begin.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_numbered_as_they_are_listed() {
        for (index, (operation, _)) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, index);
        }
    }

    #[test]
    fn what_threads_count_is_summed() {
        let metrics = Metrics::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| metrics.count(Operation::Get, StatusCode::OK, Instant::now()));
            }
        });
        metrics.count(Operation::Get, StatusCode::NOT_FOUND, Instant::now());
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let text = service::metrics::encode(&registry);
        for line in [
            "linerate_api_requests_total{operation=\"get\",status=\"2xx\"} 3",
            "linerate_api_requests_total{operation=\"get\",status=\"4xx\"} 1",
            "linerate_api_request_seconds_count{operation=\"get\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
