//! How often a key or an address may ask: a token bucket each, as the generic cell rate algorithm has it (ITU-T I.371, annex A), which
//! keeps one number: when the bucket will be full again.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// Buckets that are remembered; a forgotten one is full.
const BUCKETS: u64 = 100_000;

/// A bucket that nobody has used for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

const NANOS: u64 = 1_000_000_000;

/// The buckets of all who have one.
pub struct Buckets<K> {
    begin: Instant,
    /// Of each, when it is full: nanoseconds since `begin`.
    full_at: moka::sync::Cache<K, Arc<AtomicU64>>,
}

/// How much one may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second in the long run.
    pub per_second: u32,
    /// Requests at once.
    pub burst: u32,
}

/// What is left after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    rate: Rate,
    /// Requests that are possible now.
    requests: u64,
    /// Until the bucket is full.
    full: Duration,
}

/// A request too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// What is left: nothing.
    pub left: Left,
    /// When the next is possible.
    pub retry: Duration,
}

impl<K: Hash + Eq + Send + Sync + 'static> Buckets<K> {
    /// None yet.
    pub fn new() -> Self {
        let full_at =
            moka::sync::Cache::builder().max_capacity(BUCKETS).time_to_idle(FORGOTTEN_AFTER).build();
        Self { begin: Instant::now(), full_at }
    }

    /// Takes a token from a bucket.
    pub fn take(&self, key: K, rate: Rate) -> Result<Left, Exceeded> {
        let now = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        take(&self.full_at.get_with(key, Arc::default), rate, now)
    }
}

fn take(full_at: &AtomicU64, rate: Rate, now: u64) -> Result<Left, Exceeded> {
    let each = NANOS / u64::from(rate.per_second.max(1));
    let most = each.saturating_mul(u64::from(rate.burst.max(1)));
    let left = |full_at: u64| {
        let empty = full_at.saturating_sub(now);
        Left { rate, requests: most.saturating_sub(empty) / each.max(1), full: Duration::from_nanos(empty) }
    };
    let taken = full_at.fetch_update(Relaxed, Relaxed, |full_at| {
        let next = full_at.max(now).saturating_add(each);
        (next - now <= most).then_some(next)
    });
    match taken {
        Ok(before) => Ok(left(before.max(now).saturating_add(each))),
        Err(full_at) => {
            let retry = full_at.max(now).saturating_add(each) - now - most;
            Err(Exceeded { left: Left { requests: 0, ..left(full_at) }, retry: Duration::from_nanos(retry) })
        }
    }
}

impl Left {
    /// Tells it in an answer's fields (draft-ietf-httpapi-ratelimit-headers-10).
    pub fn tell(&self, fields: &mut HeaderMap) {
        let window = self.rate.burst.max(1).div_ceil(self.rate.per_second.max(1));
        let policy = format!("\"key\";q={};w={window}", self.rate.burst);
        let limit = format!("\"key\";r={};t={}", self.requests, seconds(self.full));
        for (name, value) in [("ratelimit-policy", policy), ("ratelimit", limit)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                fields.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

/// Whole seconds, rounded up.
pub fn seconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(u128::from(NANOS))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_then_the_rate() {
        let (bucket, rate) = (AtomicU64::new(0), Rate { per_second: 10, burst: 3 });
        let now = 5 * NANOS;
        let left: Vec<_> = (0..3).map(|_| take(&bucket, rate, now).map(|left| left.requests)).collect();
        assert_eq!(left, [Ok(2), Ok(1), Ok(0)]);
        let exceeded = take(&bucket, rate, now).expect_err("the bucket is empty");
        assert_eq!((exceeded.retry, exceeded.left.requests), (Duration::from_millis(100), 0));
        let later = now + NANOS / 10;
        assert_eq!(take(&bucket, rate, later).map(|left| left.requests), Ok(0));
        assert!(take(&bucket, rate, later).is_err());
        assert_eq!(take(&bucket, rate, later + 10 * NANOS).map(|left| left.requests), Ok(2));
    }

    #[test]
    fn refused_requests_do_not_make_the_wait_longer() {
        let (bucket, rate) = (AtomicU64::new(0), Rate { per_second: 1, burst: 1 });
        assert!(take(&bucket, rate, 0).is_ok());
        let waits: Vec<_> = (0..3).map(|_| take(&bucket, rate, 0).expect_err("empty").retry).collect();
        assert_eq!(waits, [Duration::from_secs(1); 3]);
    }

    #[test]
    fn what_is_left_is_told() {
        let mut fields = HeaderMap::new();
        let (bucket, rate) = (AtomicU64::new(0), Rate { per_second: 10, burst: 25 });
        take(&bucket, rate, 0).expect("it is full").tell(&mut fields);
        assert_eq!(fields["ratelimit-policy"], "\"key\";q=25;w=3");
        assert_eq!(fields["ratelimit"], "\"key\";r=24;t=1");
    }
}
