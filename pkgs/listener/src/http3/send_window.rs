//! How much a client is sent before it acknowledges.

use std::time::Duration;

/// The most unacknowledged bytes sent to one client: as many as it may send.
pub(crate) const SEND_WINDOW: u64 = 2 << 20;
/// The same for a nearby client. More would wait in its socket, and would have left every cache by the time it is
/// encrypted. 14 Gbit/s at a round trip of 0.3 ms.
const SEND_WINDOW_NEARBY: u64 = 512 << 10;
/// A gigabit per second, in bytes per microsecond: the rate for windows between those two.
const SEND_RATE: u64 = 125;

/// The most unacknowledged bytes for a client at this distance.
pub(super) fn send_window(round_trip: Duration) -> u64 {
    let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
    micros.saturating_mul(SEND_RATE).clamp(SEND_WINDOW_NEARBY, SEND_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_the_distance() {
        for (millis, window) in
            [(0, 512 << 10), (1, 512 << 10), (10, 1_250_000), (20, 2 << 20), (u64::MAX, 2 << 20)]
        {
            assert_eq!(send_window(Duration::from_millis(millis)), window, "{millis}");
        }
    }
}
