//! When a key was last used, in memory.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// The least number of seconds between two recorded uses. An operator wants to know whether a key is used, but not each
/// use.
const NOTED: i64 = 60;

/// Stands for no use.
const NEVER: i64 = i64::MIN;

/// When something was last used, to a minute.
#[derive(Debug)]
pub struct LastUse(AtomicI64);

impl LastUse {
    /// Never used.
    pub const fn never() -> Self {
        Self(AtomicI64::new(NEVER))
    }

    /// Last used in this second since 1970, if at all.
    pub fn of(second: Option<i64>) -> Self {
        Self(AtomicI64::new(second.unwrap_or(NEVER)))
    }

    /// The time of the last use.
    pub fn get(&self) -> Option<Timestamp> {
        let second = self.0.load(Ordering::Relaxed);
        Some(second).filter(|&second| second != NEVER).and_then(|second| Timestamp::from_second(second).ok())
    }

    /// Records a use in this second since 1970. Returns whether to store it: one use per minute is stored.
    #[inline]
    pub fn is_noted(&self, now: i64) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last.saturating_add(NOTED) <= now
            && self.0.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Clone for LastUse {
    fn clone(&self) -> Self {
        Self(AtomicI64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl PartialEq for LastUse {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for LastUse {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_use_a_minute_is_noted() {
        let used = LastUse::never();
        assert_eq!(used.get(), None);
        for (now, noted) in [(100, true), (100, false), (159, false), (160, true), (161, false), (90, false)]
        {
            assert_eq!(used.is_noted(now), noted, "{now}");
        }
        assert_eq!(used.get(), Timestamp::from_second(160).ok());
        assert!(!LastUse::of(Some(100)).is_noted(159));
        let shared = LastUse::never();
        let noted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| usize::from(shared.is_noted(7)))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        });
        assert_eq!(noted, 1, "however many use it at once");
    }
}
