//! Counters and histograms that one thread writes and any thread reads.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A counter with one writing thread and any number of readers.
///
/// Adding is a relaxed load and store, not a locked instruction. If two threads write, counts are lost, but nothing
/// worse happens. Each counter has two cache lines of its own (x86 fetches them in pairs), so counters of different
/// workers never share one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LocalCounter(AtomicU64);

impl LocalCounter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`. Only for the owning thread.
    #[inline]
    pub fn add(&self, n: u64) {
        bump(&self.0, n);
    }

    /// The current count. For any thread.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[inline]
fn bump(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}

/// log2 of the first bound in nanoseconds: 1.024 µs, well below the duration of a request.
const FIRST: u32 = 10;
/// log2 of the last bound in nanoseconds: 1.07 s, well above the duration of a good request.
const LAST: u32 = 30;

/// The number of bounds of a [`LocalHistogram`].
pub const BOUNDS: usize = (LAST - FIRST + 1) as usize;

/// A histogram of durations, with one writing thread and any number of readers.
///
/// Buckets end at the powers of two from 2^10 ns to 2^30 ns. So finding a bucket is a single instruction, and a
/// quantile is right within a factor of two.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LocalHistogram {
    /// Counts by bound; the last is for everything above.
    buckets: [AtomicU64; BOUNDS + 1],
    /// The sum, in nanoseconds.
    sum: AtomicU64,
}

impl LocalHistogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a duration in nanoseconds. Only for the owning thread.
    #[inline]
    pub fn record(&self, nanoseconds: u64) {
        // The smallest n with nanoseconds <= 2^n.
        let log = u64::BITS - nanoseconds.saturating_sub(1).leading_zeros();
        let bucket = log.clamp(FIRST, LAST + 1) - FIRST;
        bump(&self.buckets[bucket as usize], 1);
        bump(&self.sum, nanoseconds);
    }

    /// Records a duration. Only for the owning thread.
    #[inline]
    pub fn record_duration(&self, duration: Duration) {
        self.record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The recorded durations so far. For any thread. A duration that is being recorded may be counted only in part.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Relaxed)),
            sum: self.sum.load(Relaxed),
        }
    }
}

/// The content of histograms at one time. Snapshots can be summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    buckets: [u64; BOUNDS + 1],
    sum: u64,
}

impl Snapshot {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of durations, in seconds.
    pub fn seconds(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    /// Each bucket's upper bound in seconds, the last infinite, with the number of durations in this bucket alone.
    pub fn buckets(&self) -> [(f64, u64); BOUNDS + 1] {
        std::array::from_fn(|i| {
            let bound = if i < BOUNDS { (1_u64 << (FIRST as usize + i)) as f64 / 1e9 } else { f64::INFINITY };
            (bound, self.buckets[i])
        })
    }
}

impl Sum for Snapshot {
    fn sum<I: Iterator<Item = Self>>(snapshots: I) -> Self {
        snapshots.fold(Self::default(), |all, one| Self {
            buckets: std::array::from_fn(|i| all.buckets[i] + one.buckets[i]),
            sum: all.sum.wrapping_add(one.sum),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_its_cache_lines_to_itself() {
        assert_eq!((size_of::<LocalCounter>(), align_of::<LocalCounter>()), (128, 128));
    }

    #[test]
    fn a_reader_sees_what_the_writer_added() {
        let counter = LocalCounter::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..10_000).for_each(|_| counter.add(3)));
        });
        assert_eq!(counter.get(), 30_000);
    }

    #[test]
    fn a_time_falls_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let cases = [
            (0, 0),
            (1, 0),
            (1024, 0),
            (1025, 1),
            (2048, 1),
            (2049, 2),
            (1 << 30, BOUNDS - 1),
            ((1 << 30) + 1, BOUNDS),
            (u64::MAX, BOUNDS),
        ];
        for (nanoseconds, bucket) in cases {
            let histogram = LocalHistogram::new();
            histogram.record(nanoseconds);
            let buckets = histogram.snapshot().buckets();
            assert_eq!(buckets.iter().position(|(_, count)| *count == 1), Some(bucket), "{nanoseconds}");
            assert!(nanoseconds as f64 / 1e9 <= buckets[bucket].0);
        }
    }

    #[test]
    fn snapshots_add_up() {
        let (a, b) = (LocalHistogram::new(), LocalHistogram::new());
        a.record_duration(Duration::from_micros(2));
        b.record_duration(Duration::from_secs(3));
        b.record_duration(Duration::from_micros(2));
        let all: Snapshot = [&a, &b].iter().map(|histogram| histogram.snapshot()).sum();
        assert_eq!((all.count(), all.seconds()), (3, 3.000_004));
        assert_eq!((all.buckets()[1].1, all.buckets()[BOUNDS].1), (2, 1));
    }
}
