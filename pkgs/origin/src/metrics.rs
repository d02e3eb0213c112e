//! Metrics for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use service::metrics::{Family, Registry};

use crate::error::Error;

/// A counter for all threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The labels of errors, as in [`Error::label`].
const ERRORS: [&str; 8] = ["missing", "denied", "changed", "answer", "failed", "timeout", "busy", "disk"];

/// What is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Look-ups answered from the catalogue.
    pub hits: Counter,
    /// Look-ups that the origin answered with an object.
    pub looks: Counter,
    /// Look-ups that the origin answered with 304: the known version is current.
    pub unchanged: Counter,
    /// Look-ups answered with stale objects.
    pub stale: Counter,
    /// Blocks that were fetched.
    pub blocks: Counter,
    /// The bytes of these blocks.
    pub bytes: Counter,
    /// Blocks that were passed on from memory, since there was no room on the disk.
    pub passed: Counter,
    /// Objects that were evicted, or replaced by another version.
    pub evicted: Counter,
    errors: [Counter; ERRORS.len()],
}

impl Metrics {
    /// Counts an error.
    pub fn failed(&self, error: &Error) {
        if let Some(index) = ERRORS.iter().position(|label| *label == error.label()) {
            self.errors[index].add(1);
        }
    }

    /// Adds them to `registry`; `size` returns the numbers of bytes and objects.
    pub fn register(
        self: &Arc<Self>,
        registry: &mut Registry,
        size: impl Fn() -> (u64, usize) + Clone + Send + Sync + 'static,
    ) {
        let reading = |value: fn(&Self) -> &Counter| {
            let metrics = Arc::clone(self);
            move || value(&metrics).get()
        };
        Family::new("linerate_origin_lookups", "Lookups of objects, by what they were answered from")
            .with(&[("from", "catalogue")], reading(|metrics| &metrics.hits))
            .with(&[("from", "origin")], reading(|metrics| &metrics.looks))
            .with(&[("from", "origin_unchanged")], reading(|metrics| &metrics.unchanged))
            .with(&[("from", "stale")], reading(|metrics| &metrics.stale))
            .register(registry);
        let mut errors = Family::new("linerate_origin_errors", "Requests to the origin that failed, by why");
        for (index, label) in ERRORS.into_iter().enumerate() {
            let metrics = Arc::clone(self);
            errors = errors.with(&[("error", label)], move || metrics.errors[index].get());
        }
        errors.register(registry);
        Family::new("linerate_origin_fetched_blocks", "Blocks fetched from the origin")
            .with(&[], reading(|metrics| &metrics.blocks))
            .register(registry);
        Family::new("linerate_origin_fetched_bytes", "Bytes fetched from the origin")
            .with(&[], reading(|metrics| &metrics.bytes))
            .register(registry);
        Family::new("linerate_origin_passed_blocks", "Blocks that found no room in the cache")
            .with(&[], reading(|metrics| &metrics.passed))
            .register(registry);
        Family::new("linerate_origin_evicted_objects", "Objects evicted, or replaced by another version")
            .with(&[], reading(|metrics| &metrics.evicted))
            .register(registry);
        let bytes = size.clone();
        Family::new("linerate_origin_cache_bytes", "Bytes of the cache on the disk")
            .with(&[], move || bytes().0 as f64)
            .register(registry);
        Family::new("linerate_origin_cache_objects", "Objects in the cache")
            .with(&[], move || size().1 as f64)
            .register(registry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_counted() {
        let metrics = Metrics::default();
        let all = [
            Error::Missing,
            Error::Denied,
            Error::Changed,
            Error::Answer(String::new()),
            Error::Failed(String::new()),
            Error::TimedOut,
            Error::Busy,
            Error::Disk(std::io::ErrorKind::Other),
        ];
        all.iter().for_each(|error| metrics.failed(error));
        assert!(metrics.errors.iter().all(|count| count.get() == 1));
    }
}
