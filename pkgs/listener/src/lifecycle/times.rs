//! How long connections are kept, and how that is measured, for every loop that serves connections.

use std::time::Duration;

use service::handover;

/// How often deadlines are checked, and how late a loop's clock may be.
pub const TICK: Duration = Duration::from_millis(250);

/// Ticks per second.
const PER_SECOND: u64 = 4;

/// The default time that a connection without a request is kept at shutdown, so that a request on its way is answered.
pub const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// How long the client's input is still received after a last answer, so that no reset destroys the answer (RFC 9112,
/// section 9.6).
pub const LINGER: Duration = Duration::from_secs(2);

/// The smallest number of ticks that is no shorter than `time`. Called for each request, so it avoids dividing 128
/// bits.
#[inline]
#[must_use]
pub fn ticks(time: Duration) -> u32 {
    let part = time.subsec_nanos().div_ceil(TICK.subsec_nanos());
    let ticks = time.as_secs().saturating_mul(PER_SECOND).saturating_add(part.into());
    ticks.try_into().unwrap_or(u32::MAX)
}

/// How long connections have at shutdown.
#[derive(Clone, Copy, Debug)]
pub struct DrainTimes {
    whole: Duration,
    grace: Duration,
}

impl DrainTimes {
    /// Running requests have `whole`, and a connection without a request has `grace` of it.
    #[must_use]
    pub const fn new(whole: Duration, grace: Duration) -> Self {
        Self { whole, grace }
    }

    /// How long running requests have.
    #[must_use]
    pub const fn whole(self) -> Duration {
        self.whole
    }

    /// How long a connection without a request is kept.
    #[must_use]
    pub fn grace(self) -> Duration {
        self.grace_where(handover::is_handed_over())
    }

    /// If another process has taken over, nobody waits for this one to end. The grace is then at least half of the
    /// whole time; the other half is left for closing.
    fn grace_where(self, handed_over: bool) -> Duration {
        if handed_over { self.grace.max(self.whole / 2) } else { self.grace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_tick_counts_as_one() {
        for (time, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (TICK, 1),
            (TICK + Duration::from_nanos(1), 2),
            (Duration::from_secs(10), 40),
            (Duration::new(59, 999_999_999), 240),
            (Duration::MAX, u32::MAX),
        ] {
            assert_eq!(ticks(time), expected, "{time:?}");
        }
    }

    #[test]
    fn who_is_replaced_has_leisure() {
        let second = Duration::from_secs(1);
        for (whole, handed_over, expected) in [(10, false, 1), (10, true, 5), (1, true, 1), (0, false, 1)] {
            let times = DrainTimes::new(whole * second, second);
            assert_eq!(times.grace_where(handed_over), expected * second, "{whole} {handed_over}");
        }
    }
}
