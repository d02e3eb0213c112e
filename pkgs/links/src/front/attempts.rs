//! Tries at passwords, bounded per visitor and link, per link, and overall.

use std::net::IpAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use service::rate_limit::{Rate, RateLimiter};
use service::socket::network;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Tries a minute from one address at one link.
const PER_VISITOR: NonZero<u32> = NonZero::new(5).unwrap();

/// Tries a minute at one link from everywhere.
const PER_LINK: NonZero<u32> = NonZero::new(100).unwrap();

/// Hashes at once: each takes 19 MiB and a core for some 20 ms.
const AT_ONCE: usize = 2;

/// Visitors and links whose tries are remembered.
const REMEMBERED: usize = 100_000;

const MINUTE: Duration = Duration::from_secs(60);

/// Bounds tries at passwords.
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
    /// Asks to try a password. None when there were too many tries; else keep the permit while hashing.
    pub fn begin(&self, link: i64, address: IpAddr, now: Instant) -> Option<OwnedSemaphorePermit> {
        let visitor = (link, Some(network(address)));
        self.limiter.take(visitor, Rate::per(MINUTE, PER_VISITOR), now).ok()?;
        self.limiter.take((link, None::<IpAddr>), Rate::per(MINUTE, PER_LINK), now).ok()?;
        Arc::clone(&self.hashes).try_acquire_owned().ok()
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
            assert!(attempts.begin(1, address("192.0.2.1"), now).is_some());
        }
        assert!(attempts.begin(1, address("192.0.2.1"), now).is_none());
        assert!(attempts.begin(1, address("::ffff:192.0.2.1"), now).is_none(), "the same visitor over IPv6");
        assert!(attempts.begin(2, address("192.0.2.1"), now).is_some(), "another link");
        assert!(attempts.begin(1, address("2001:db8::1"), now).is_some(), "another visitor");
        for n in 2..=PER_VISITOR.get() {
            assert!(attempts.begin(1, address(&format!("2001:db8::{n}")), now).is_some(), "the same site");
        }
        assert!(attempts.begin(1, address("2001:db8::ffff"), now).is_none(), "the same site, used up");
        assert!(attempts.begin(1, address("192.0.2.1"), now + MINUTE).is_some(), "a minute later");
    }

    #[test]
    fn hashes_at_once_are_bounded() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let address = IpAddr::from([192, 0, 2, 1]);
        let held: Vec<_> = (0..AT_ONCE).map(|_| attempts.begin(1, address, now)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(attempts.begin(1, address, now).is_none());
        drop(held);
        assert!(attempts.begin(1, address, now).is_some());
    }
}
