//! How much a client is sent before it acknowledges: two to four times its congestion window, since more would only
//! wait in this process. The window grows while answers wait for room, as Linux grows the send buffers of TCP. A budget
//! limits what all clients together have beyond the least. So a client that acknowledges nothing never has more than
//! the least.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::congestion::is_acknowledged;
use crate::limits::ResponseReservation;
use crate::quic_driver::Connection;

/// The unacknowledged bytes that every client may have: more than a first flight (RFC 9002, section 7.2: ten
/// datagrams), so that nobody waits for more.
pub(crate) const LEAST: u64 = 32 << 10;
/// The most unacknowledged bytes sent to one client: as many as a client may send by default.
const MOST: u64 = 2 << 20;
/// The same for a nearby client. More would wait in its socket, and would have left every cache by the time it is
/// encrypted. 14 Gbit/s at a round trip of 0.3 ms.
const MOST_NEARBY: u64 = 512 << 10;
/// A gigabit per second, in bytes per microsecond: the rate for windows between those two.
const RATE: u64 = 125;

/// The most unacknowledged bytes for a client at this distance.
fn most(round_trip: Duration) -> u64 {
    let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
    micros.saturating_mul(RATE).clamp(MOST_NEARBY, MOST)
}

/// The window for a client whose congestion window is `congestion`, if that is wider than `current`.
fn wider(current: u64, congestion: u64, most: u64) -> Option<u64> {
    let wanted = congestion.saturating_mul(2).checked_next_power_of_two().unwrap_or(most).min(most);
    (wanted > current).then_some(wanted)
}

/// The window of one connection.
#[derive(Debug)]
pub(super) struct SendWindow {
    quic: Connection,
    bytes: AtomicU64,
    /// The largest window for this client.
    most: AtomicU64,
    /// The reservation for what exceeds the least.
    reserved: Mutex<ResponseReservation>,
}

impl SendWindow {
    /// The least window, for a connection after its handshake. Later round trips include the client's own load.
    pub(super) fn new(quic: Connection, reserved: ResponseReservation) -> Self {
        let most = most(quic.rtt()).into();
        Self { quic, bytes: LEAST.into(), most, reserved: Mutex::new(reserved) }
    }

    /// How many bytes may be sent without acknowledgement.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Grows the window if the client takes enough and the budget has room. Call this when an answer waits.
    pub(super) fn grow(&self) -> bool {
        let (current, most) = (self.bytes(), self.most.load(Relaxed));
        if current >= most {
            return false;
        }
        let Some(wanted) = wider(current, self.quic.congestion_window(), most) else { return false };
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if !reserved.resize(wanted - LEAST) {
            reserved.resize(current - LEAST);
            return false;
        }
        self.set(wanted);
        true
    }

    /// Shrinks the window to the least, unless more than that is unacknowledged. Call this when no answer is being
    /// sent.
    pub(super) fn shrink(&self) {
        if self.bytes() > LEAST && is_acknowledged(&self.quic, LEAST) {
            self.set(LEAST);
            self.reserved.lock().unwrap_or_else(PoisonError::into_inner).resize(0);
        }
    }

    /// Follows the client to another address.
    pub(super) fn follow(&self) {
        self.most.store(most(self.quic.rtt()), Relaxed);
    }

    fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Relaxed);
        self.quic.set_send_window(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_follows_the_distance() {
        for (millis, bytes) in
            [(0, 512 << 10), (1, 512 << 10), (10, 1_250_000), (20, 2 << 20), (u64::MAX, 2 << 20)]
        {
            assert_eq!(most(Duration::from_millis(millis)), bytes, "{millis}");
        }
    }

    #[test]
    fn windows_grow_by_what_a_client_takes() {
        for (current, congestion, expected) in [
            (LEAST, 14_720, None),
            (LEAST, 20_000, Some(64 << 10)),
            (64 << 10, 20_000, None),
            (64 << 10, 300_000, Some(1 << 20)),
            (64 << 10, 3 << 20, Some(MOST)),
            (64 << 10, u64::MAX, Some(MOST)),
            (MOST, u64::MAX, None),
        ] {
            assert_eq!(wider(current, congestion, MOST), expected, "{current} {congestion}");
        }
    }
}
