//! Rate limits: a token bucket for each key, in bounded memory.
//!
//! A bucket is the single number of the generic cell rate algorithm (ITU-T I.371, annex A): when it will be full
//! again. A [`RateLimiter`] keeps one for each key. Code that has its own place for it, such as a connection, keeps a
//! [`TokenBucket`] there. The `governor` crate has the same algorithm, but keeps every key until it is told to sweep,
//! so clients with many addresses would decide how much memory it takes.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Parts of the table, each with its own lock.
const SHARDS: usize = 16;

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds until one more token is available; at least one.
    interval: u64,
    burst: u32,
}

impl Rate {
    /// `tokens` per second in the long run, and `burst` at once.
    pub fn per_second(tokens: NonZero<u32>, burst: NonZero<u32>) -> Self {
        Self::new(Duration::from_secs(1), tokens, burst)
    }

    /// `tokens` per `period` in the long run, and as many at once.
    pub fn per(period: Duration, tokens: NonZero<u32>) -> Self {
        Self::new(period, tokens, tokens)
    }

    fn new(period: Duration, tokens: NonZero<u32>, burst: NonZero<u32>) -> Self {
        Self { interval: (nanos(period) / u64::from(tokens.get())).max(1), burst: burst.get() }
    }

    /// How many tokens may be taken at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// How long an empty bucket takes to fill.
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.capacity())
    }

    fn capacity(&self) -> u64 {
        self.interval.saturating_mul(self.burst.into())
    }

    /// Takes a token from a bucket that is full at `full_at`. Returns when it will then be full, and what is left.
    fn take(&self, full_at: u64, now: u64) -> Result<(u64, Left), Exceeded> {
        let next = full_at.max(now).saturating_add(self.interval);
        let missing = next - now;
        match self.capacity().checked_sub(missing) {
            Some(room) => {
                Ok((next, Left { tokens: room / self.interval, full: Duration::from_nanos(missing) }))
            }
            None => Err(Exceeded {
                retry: Duration::from_nanos(missing - self.capacity()),
                full: Duration::from_nanos(missing - self.interval),
            }),
        }
    }
}

/// The tokens left in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How many more tokens may be taken now.
    pub tokens: u64,
    /// How long until the bucket is full.
    pub full: Duration,
}

/// The error of an empty bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too often: possible again in {retry:?}")]
pub struct Exceeded {
    /// How long until there is a token. Failed attempts do not extend it.
    pub retry: Duration,
    /// How long until the bucket is full.
    pub full: Duration,
}

impl Exceeded {
    /// For `Retry-After`, in whole seconds, rounded up.
    pub fn retry_seconds(&self) -> u64 {
        self.retry.as_secs() + u64::from(self.retry.subsec_nanos() > 0)
    }
}

/// One bucket, kept by its user. It starts full.
#[derive(Debug, Default)]
pub struct TokenBucket(AtomicU64);

impl TokenBucket {
    /// A bucket that is full this many nanoseconds after the start of its clock.
    pub(crate) fn full_at(nanos: u64) -> Self {
        Self(AtomicU64::new(nanos))
    }

    /// When it is full, in nanoseconds after the start of its clock.
    pub(crate) fn is_full_at(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Takes a token. `now` is the time since any fixed moment.
    ///
    /// # Errors
    /// When there is no token.
    pub fn take(&self, rate: Rate, now: Duration) -> Result<Left, Exceeded> {
        let now = nanos(now);
        let mut full_at = self.0.load(Relaxed);
        loop {
            let (next, left) = rate.take(full_at, now)?;
            match self.0.compare_exchange_weak(full_at, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(left),
                Err(changed) => full_at = changed,
            }
        }
    }
}

/// One bucket per key. A key is an address (its [`network`](crate::socket::network), since an IPv6 site has many
/// addresses), a name, or several of them together. The buckets that were unused for longest are forgotten, as if they
/// were full.
///
/// Keys are stored as hashes under a secret of this process. Two keys with the same hash share a bucket, but no client
/// can cause that.
#[derive(Debug)]
pub struct RateLimiter {
    begin: Instant,
    hasher: RandomState,
    shards: Box<[Mutex<Buckets>]>,
    /// Keys in each half of a shard.
    half: usize,
}

/// When buckets are full, in nanoseconds since the limiter was made, by keyed hashes of their keys. When the young half
/// is full, the old half is forgotten and the young one takes its place. So active keys are kept without a list in
/// order of use.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    young: HashMap<u64, u64, Hashed>,
    old: HashMap<u64, u64, Hashed>,
}

/// A hasher for keys that are already keyed hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hashed(u64);

impl Hashed {
    /// The shard of a key. It uses other bits than the hash table, which uses the low bits and the seven highest ones.
    pub(crate) fn shard(key: u64, shards: usize) -> usize {
        (key >> 32) as usize % shards
    }
}

impl BuildHasher for Hashed {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Never called, since the keys are numbers.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

impl RateLimiter {
    /// A limiter for about this many keys, of 40 to 80 bytes each.
    pub fn new(keys: usize) -> Self {
        Self {
            begin: Instant::now(),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            half: (keys / SHARDS / 2).max(1),
        }
    }

    /// Takes a token from a key's bucket. `now` is the current time, or slightly before.
    ///
    /// # Errors
    /// When there is no token.
    pub fn take(&self, key: impl Hash, rate: Rate, now: Instant) -> Result<Left, Exceeded> {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        shard.take(hash, rate, self.since(now), self.half)
    }

    /// Returns a token for something that is not to count, such as a correct password.
    pub fn give_back(&self, key: impl Hash, rate: Rate) {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        let full_at = shard.full_at(hash).saturating_sub(rate.interval);
        shard.set(hash, full_at, self.half);
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Buckets> {
        self.shards[Hashed::shard(hash, SHARDS)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.begin))
    }
}

impl Buckets {
    /// Takes a token of a key at `now`, in nanoseconds since the limiter was made.
    ///
    /// # Errors
    /// When there is no token.
    pub(crate) fn take(&mut self, hash: u64, rate: Rate, now: u64, half: usize) -> Result<Left, Exceeded> {
        let (next, left) = rate.take(self.full_at(hash), now)?;
        self.set(hash, next, half);
        Ok(left)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// When a bucket is full; long ago for an unknown key.
    pub(crate) fn full_at(&self, hash: u64) -> u64 {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).copied().unwrap_or(0)
    }

    /// Sets when a bucket is full. Each half holds up to `half` keys.
    pub(crate) fn set(&mut self, hash: u64, full_at: u64, half: usize) {
        if self.young.len() >= half && !self.young.contains_key(&hash) {
            // This reuses their memory.
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
        self.young.insert(hash, full_at);
    }
}

/// As 64 bits of nanoseconds, which suffice for five centuries.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn of(number: u32) -> NonZero<u32> {
        NonZero::new(number).expect("more than none")
    }

    fn per_second(tokens: u32, burst: u32) -> Rate {
        Rate::per_second(of(tokens), of(burst))
    }

    #[test]
    fn a_burst_is_let_through_and_then_the_rate() {
        let millis = Duration::from_millis;
        for (rate, steps) in [
            // When it asks, and what is left or how long to wait.
            (
                per_second(10, 3),
                &[
                    (5000, Ok(2)),
                    (5000, Ok(1)),
                    (5000, Ok(0)),
                    (5000, Err(100)),
                    (5050, Err(50)),
                    (5100, Ok(0)),
                    (5100, Err(100)),
                    (20_000, Ok(2)),
                ][..],
            ),
            (per_second(1, 1), &[(0, Ok(0)), (0, Err(1000)), (0, Err(1000)), (1000, Ok(0))]),
            (
                Rate::per(60 * SECOND, of(2)),
                &[(0, Ok(1)), (1000, Ok(0)), (2000, Err(28_000)), (30_000, Ok(0)), (120_000, Ok(1))],
            ),
            // A clock that stands still or goes back adds no tokens.
            (per_second(1, 1), &[(9000, Ok(0)), (1000, Err(9000)), (10_000, Ok(0))]),
        ] {
            let (limiter, bucket) = (RateLimiter::new(100), TokenBucket::default());
            for &(at, expected) in steps {
                let taken = limiter.take("key", rate, limiter.begin + millis(at));
                assert_eq!(bucket.take(rate, millis(at)), taken, "{rate:?} at {at}");
                let said = taken.map(|left| left.tokens).map_err(|exceeded| exceeded.retry);
                assert_eq!(said, expected.map_err(millis), "{rate:?} at {at}");
            }
        }
    }

    #[test]
    fn keys_have_buckets_of_their_own() {
        let (limiter, rate) = (RateLimiter::new(100), per_second(1, 1));
        let now = limiter.begin;
        let address = IpAddr::from([192, 0, 2, 1]);
        let keys = [(1, Some(address)), (1, None), (2, Some(address))];
        for key in keys {
            assert!(limiter.take(key, rate, now).is_ok(), "{key:?}");
            assert!(limiter.take(key, rate, now).is_err(), "{key:?}");
        }
        assert!(limiter.take("one", rate, now).is_ok() && limiter.take("two", rate, now).is_ok());
        assert!(limiter.take(String::from("one"), rate, now).is_err(), "the same as a str");
    }

    #[test]
    fn what_is_given_back_does_not_count() {
        let (limiter, rate) = (RateLimiter::new(100), Rate::per(60 * SECOND, of(2)));
        for _ in 0..100 {
            assert!(limiter.take("right", rate, limiter.begin).is_ok());
            limiter.give_back("right", rate);
        }
        limiter.give_back("right", rate);
        let taken: Vec<_> = (0..3).map(|_| limiter.take("right", rate, limiter.begin).is_ok()).collect();
        assert_eq!(taken, [true, true, false], "no more than were taken is given back");
    }

    #[test]
    fn who_goes_on_is_remembered_among_many_and_memory_is_bounded() {
        let (limiter, rate) = (RateLimiter::new(1600), per_second(1, 1));
        let now = limiter.begin;
        let guesses = Rate::per(3600 * SECOND, of(1000));
        for n in 0..90_000_u32 {
            if n.is_multiple_of(100) {
                let left = limiter.take("guesses", guesses, now).map(|left| left.tokens);
                assert_eq!(left, Ok(u64::from(999 - n / 100)));
            }
            assert!(limiter.take(n, rate, now).is_ok());
        }
        let kept: usize = limiter.shards.iter().map(|shard| shard.lock().expect("no panic").len()).sum();
        assert!(kept <= 1600, "{kept} are kept");
    }

    #[test]
    fn seconds_to_wait_are_rounded_up() {
        for (millis, seconds) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            let exceeded = Exceeded { retry: Duration::from_millis(millis), full: Duration::ZERO };
            assert_eq!(exceeded.retry_seconds(), seconds);
        }
    }
}
