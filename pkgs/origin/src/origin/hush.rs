//! Failures that may come thousands of times a second, logged now and then.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often one kind of failure is logged.
const HUSH: Duration = Duration::from_secs(1);

/// Has what may fail thousands of times a second logged once in [`HUSH`].
#[derive(Debug, Default)]
pub(super) struct Hush(Mutex<(Option<Instant>, u64)>);

impl Hush {
    /// How often it was so since it was last logged, where it is time to do that again.
    pub(super) fn may_speak(&self) -> Option<u64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.1 += 1;
        if last.0.is_some_and(|at| at.elapsed() < HUSH) {
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
        let hush = Hush::default();
        assert_eq!(hush.may_speak(), Some(1));
        assert_eq!(hush.may_speak(), None);
        assert_eq!(hush.may_speak(), None);
        let earlier = Instant::now().checked_sub(HUSH);
        hush.0.lock().expect("no panic").0 = earlier;
        assert_eq!(hush.may_speak(), Some(3));
    }
}
