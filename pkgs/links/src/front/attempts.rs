//! Tries at passwords, bounded per visitor and link, per link, and overall.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use service::socket::network;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Tries a minute from one address at one link.
const PER_VISITOR: u32 = 5;

/// Tries a minute at one link from everywhere.
const PER_LINK: u32 = 100;

/// Hashes at once: each takes 19 MiB and a core for some 20 ms.
const AT_ONCE: usize = 2;

/// Counters kept; past it the least used are forgotten.
const CAPACITY: u64 = 100_000;

/// Counts tries within a minute.
pub struct Attempts {
    counts: moka::sync::Cache<(i64, Option<IpAddr>), Arc<AtomicU32>>,
    hashes: Arc<Semaphore>,
}

impl Default for Attempts {
    fn default() -> Self {
        let counts =
            moka::sync::Cache::builder().max_capacity(CAPACITY).time_to_live(Duration::from_secs(60)).build();
        Self { counts, hashes: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Attempts {
    /// Asks to try a password. None when there were too many tries; else keep the permit while hashing.
    pub fn begin(&self, link: i64, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        let allowed = |key, most| {
            let count = self.counts.get_with(key, || Arc::new(AtomicU32::new(0)));
            count.fetch_add(1, Ordering::Relaxed) < most
        };
        if !allowed((link, Some(network(address))), PER_VISITOR) || !allowed((link, None), PER_LINK) {
            return None;
        }
        Arc::clone(&self.hashes).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_bounded_per_visitor_and_link() {
        let attempts = Attempts::default();
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for _ in 0..PER_VISITOR {
            assert!(attempts.begin(1, address("192.0.2.1")).is_some());
        }
        assert!(attempts.begin(1, address("192.0.2.1")).is_none());
        assert!(attempts.begin(1, address("::ffff:192.0.2.1")).is_none(), "the same visitor over IPv6");
        assert!(attempts.begin(2, address("192.0.2.1")).is_some(), "another link");
        assert!(attempts.begin(1, address("2001:db8::1")).is_some(), "another visitor");
        for n in 2..=PER_VISITOR {
            assert!(attempts.begin(1, address(&format!("2001:db8::{n}"))).is_some(), "the same site");
        }
        assert!(attempts.begin(1, address("2001:db8::ffff")).is_none(), "the same site, used up");
    }

    #[test]
    fn hashes_at_once_are_bounded() {
        let attempts = Attempts::default();
        let address = IpAddr::from([192, 0, 2, 1]);
        let held: Vec<_> = (0..AT_ONCE).map(|_| attempts.begin(1, address)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(attempts.begin(1, address).is_none());
        drop(held);
        assert!(attempts.begin(1, address).is_some());
    }
}
