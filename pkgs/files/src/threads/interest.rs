//! Whether somebody still waits for the result of a job.

use std::sync::{Arc, Weak};

/// Held by whoever waits for results of jobs. When it is dropped, nobody does any more.
#[derive(Debug, Default)]
pub struct Waiter(Arc<()>);

/// What a job knows about whoever waits for its result.
#[derive(Clone, Debug)]
pub struct Interest(Option<Weak<()>>);

impl Waiter {
    /// The interest in a job's result, for as long as this exists.
    pub fn interest(&self) -> Interest {
        Interest(Some(Arc::downgrade(&self.0)))
    }
}

impl Interest {
    /// The job is done in any case.
    pub const ALWAYS: Self = Self(None);

    /// Whether somebody still waits.
    pub fn is_there(&self) -> bool {
        self.0.as_ref().is_none_or(|waiter| waiter.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interest_ends_with_the_waiter() {
        let waiter = Waiter::default();
        let interests = [waiter.interest(), waiter.interest(), Interest::ALWAYS];
        assert!(interests.iter().all(Interest::is_there));
        drop(waiter);
        assert_eq!(interests.map(|interest| interest.is_there()), [false, false, true]);
    }
}
