//! Limits password attempts per visitor and link, per link, and overall.

use std::net::IpAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use service::rate_limit::{Rate, RateLimiter};
use service::socket::network;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Attempts per minute from one address on one link.
const PER_VISITOR: NonZero<u32> = NonZero::new(5).unwrap();

/// Attempts per minute on one link from all addresses.
const PER_LINK: NonZero<u32> = NonZero::new(100).unwrap();

/// Hashes that run at once. Each takes 19 MiB and one core for some 20 ms.
const AT_ONCE: usize = 2;

/// Visitors and links whose attempts are remembered.
const REMEMBERED: usize = 100_000;

const MINUTE: Duration = Duration::from_secs(60);

/// Limits password attempts.
pub struct Attempts {
    limiter: RateLimiter,
    hashes: Arc<Semaphore>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { limiter: RateLimiter::new(REMEMBERED), hashes: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Attempts {
    /// Requests an attempt. Keep the permit while hashing.
    ///
    /// # Errors
    /// When there were too many attempts, or too many run now. The error is the number of seconds to wait.
    pub fn begin(&self, link: i64, address: IpAddr, now: Instant) -> Result<OwnedSemaphorePermit, u64> {
        let visitor = (link, Some(network(address)));
        let everybody = (link, None::<IpAddr>);
        let (by_visitor, by_link) = (Rate::per(MINUTE, PER_VISITOR), Rate::per(MINUTE, PER_LINK));
        self.limiter.take(visitor, by_visitor, now).map_err(|exceeded| exceeded.retry_seconds())?;
        if let Err(exceeded) = self.limiter.take(everybody, by_link, now) {
            self.limiter.give_back(visitor, by_visitor);
            return Err(exceeded.retry_seconds());
        }
        Arc::clone(&self.hashes).try_acquire_owned().map_err(|_| {
            // No attempt was made, so it does not count.
            self.limiter.give_back(visitor, by_visitor);
            self.limiter.give_back(everybody, by_link);
            1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_bounded_per_visitor_and_link() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for _ in 0..PER_VISITOR.get() {
            assert!(attempts.begin(1, address("192.0.2.1"), now).is_ok());
        }
        let wait = |text: &str, now| attempts.begin(1, address(text), now).err();
        assert_eq!(wait("192.0.2.1", now), Some(12));
        assert_eq!(wait("::ffff:192.0.2.1", now), Some(12), "the same visitor over IPv6");
        let later = now + Duration::from_millis(11_900);
        assert_eq!(wait("192.0.2.1", later), Some(1));
        assert_eq!(wait("192.0.2.1", later + Duration::from_millis(100)), None, "as it was told");
        assert!(attempts.begin(2, address("192.0.2.1"), now).is_ok(), "another link");
        assert!(attempts.begin(1, address("2001:db8::1"), now).is_ok(), "another visitor");
        for n in 2..=PER_VISITOR.get() {
            assert!(attempts.begin(1, address(&format!("2001:db8::{n}")), now).is_ok(), "the same site");
        }
        assert!(attempts.begin(1, address("2001:db8::ffff"), now).is_err(), "the same site, used up");
        assert!(attempts.begin(1, address("192.0.2.1"), now + MINUTE).is_ok(), "a minute later");
    }

    #[test]
    fn hashes_at_once_are_bounded() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let address = IpAddr::from([192, 0, 2, 1]);
        let held: Vec<_> = (0..AT_ONCE).map(|_| attempts.begin(1, address, now)).collect();
        assert!(held.iter().all(Result::is_ok));
        for _ in 0..10 * PER_VISITOR.get() {
            assert_eq!(attempts.begin(1, address, now).err(), Some(1), "it does not count");
        }
        drop(held);
        assert!(attempts.begin(1, address, now).is_ok());
    }
}
