//! Whether a worker tries look-ups itself, without waiting for the disk, before it passes them on to threads.
//!
//! An attempt that succeeds costs less than passing a look-up on, and one that fails is wasted. So if nearly all fail,
//! most are passed on at once. Clients can bring that about by asking for names that do not exist: then look-ups of
//! others cost a turn of a thread each, but not more, since none is passed on untried while the threads are behind.

/// By how much an attempt that succeeds counts more than one that fails: from this many failures for each success on,
/// attempts cost more than they save.
const WORTH: u32 = 3;

/// From this balance on, attempts are the exception.
const BAD: u32 = 32;

/// The worst balance, from which a few successes lead back.
const WORST: u32 = 64;

/// With a bad balance, one of so many look-ups is tried.
const EVERY: u32 = 8;

/// The balance of recent attempts.
#[derive(Debug, Default)]
pub struct LookupAttempts {
    failures: u32,
    skipped: u32,
}

impl LookupAttempts {
    /// Whether to try the next look-up.
    pub fn is_due(&mut self) -> bool {
        if self.failures < BAD {
            return true;
        }
        self.skipped = (self.skipped + 1) % EVERY;
        self.skipped == 0
    }

    /// Records whether an attempt has succeeded.
    pub fn record(&mut self, has_succeeded: bool) {
        self.failures = match has_succeeded {
            true => self.failures.saturating_sub(WORTH),
            false => WORST.min(self.failures + 1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 1,000 look-ups are tried, if one of so many succeeds.
    fn tried(attempts: &mut LookupAttempts, success_every: usize) -> usize {
        let mut tried = 0;
        for number in 0..1000 {
            if attempts.is_due() {
                tried += 1;
                attempts.record(number % success_every == 0);
            }
        }
        tried
    }

    #[test]
    fn look_ups_are_tried_unless_nearly_all_fail() {
        let mut attempts = LookupAttempts::default();
        assert_eq!(tried(&mut attempts, 1), 1000);
        assert_eq!(tried(&mut attempts, 2), 1000);
        let when_all_fail = tried(&mut attempts, usize::MAX);
        assert!((125..200).contains(&when_all_fail), "{when_all_fail}");
        let when_all_succeed_again = tried(&mut attempts, 1);
        assert!((900..1000).contains(&when_all_succeed_again), "{when_all_succeed_again}");
    }
}
