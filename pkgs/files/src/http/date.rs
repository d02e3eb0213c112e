//! Times as HTTP writes them, and when a file was modified.

use std::time::SystemTime;

pub use listener::date::{at, text};

/// `Last-Modified` for a file that changed `seconds` after 1970, in an answer at `now`. A future time becomes `now`
/// (RFC 9110, section 8.8.2.1: it must not be later than `Date`).
pub fn last_modified(seconds: i64, now: SystemTime) -> SystemTime {
    at(seconds).min(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_was_modified_in_the_future() {
        let now = at(1000);
        for (seconds, modified) in [(-5, 0), (0, 0), (999, 999), (1000, 1000), (1001, 1000), (i64::MAX, 1000)]
        {
            assert_eq!(last_modified(seconds, now), at(modified), "{seconds}");
        }
    }
}
