//! Limits how often something is logged that may happen thousands of times per second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often one kind of failure is logged.
const INTERVAL: Duration = Duration::from_secs(1);

/// Limits the log of one kind of failure to one line per [`INTERVAL`].
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<(Option<Instant>, u64)>);

impl LogLimit {
    /// A limit for a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// How often the failure has happened since it was last logged. None if it is too early to log it again.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.1 += 1;
        if last.0.is_some_and(|at| at.elapsed() < INTERVAL) {
            return None;
        }
        last.0 = Some(Instant::now());
        Some(std::mem::take(&mut last.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_logged_and_the_next_are_counted() {
        let limit = LogLimit::default();
        assert_eq!(limit.due(), Some(1));
        assert_eq!(limit.due(), None);
        assert_eq!(limit.due(), None);
        let earlier = Instant::now().checked_sub(INTERVAL);
        limit.0.lock().expect("no panic").0 = earlier;
        assert_eq!(limit.due(), Some(3));
    }
}
