//! How much a client may send before it is read.
//!
//! A window smaller than what fits on the way (bandwidth times delay) slows a client down; a larger one costs memory
//! if the service reads slowly. So it starts as configured, and doubles each time the service has read most of it
//! within one round trip, which a ping measures.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use h2::{Ping, PingPong};

use super::library::Connection;
use crate::body::http2::Shared;
use crate::config::Http2;

/// The largest window: 10 Gbit/s over 13 ms.
const MOST_BYTES: u32 = 16 << 20;

/// The windows of a connection and its streams.
pub struct Window {
    ping: Option<PingPong>,
    /// Counts the bytes read since the ping.
    bodies: Arc<Shared>,
    /// Whether a ping is on its way.
    asked: bool,
    stream: u32,
    connection: u32,
}

impl Window {
    /// Starts as configured. `bodies` counts what is read.
    pub fn new(config: &Http2, connection: &mut dyn Connection, bodies: Arc<Shared>) -> Self {
        Self {
            ping: if config.adaptive { connection.ping_pong() } else { None },
            bodies,
            asked: false,
            stream: config.stream_window,
            connection: config.connection_window,
        }
    }

    /// Widens the windows if they hold the client back.
    pub fn poll(&mut self, context: &mut Context<'_>, connection: &mut dyn Connection) {
        let Some(ping) = &mut self.ping else { return };
        if !self.asked {
            // Nothing is measured while nobody uploads.
            if self.bodies.received.swap(0, Relaxed) > 0 {
                self.asked = ping.send_ping(Ping::opaque()).is_ok();
            }
            return;
        }
        match ping.poll_pong(context) {
            Poll::Pending => {}
            Poll::Ready(Err(_)) => self.ping = None,
            Poll::Ready(Ok(_)) => {
                self.asked = false;
                let received = self.bodies.received.swap(0, Relaxed);
                if let Some((stream, most)) = widened(self.stream, self.connection, received) {
                    connection.set_target_window_size(most);
                    // Fails while an earlier change is not yet acknowledged; the next attempt will do.
                    if connection.set_initial_window_size(stream).is_ok() {
                        (self.stream, self.connection) = (stream, most);
                    }
                }
            }
        }
    }
}

/// The new windows of stream and connection after this much was read in one round trip.
fn widened(stream: u32, connection: u32, received: usize) -> Option<(u32, u32)> {
    // Two thirds, since the ping does not cover all of it.
    let most = received >= stream.min(connection) as usize / 3 * 2;
    let wider = |window: u32| window.saturating_mul(2).min(MOST_BYTES).max(window);
    let widened = (wider(stream), wider(connection));
    (most && widened != (stream, connection)).then_some(widened)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    #[test]
    fn windows_double_when_most_of_them_is_read_in_a_round_trip() {
        for (stream, connection, received, widened_to) in [
            (MIB, 2 * MIB, 100, None),
            (MIB, 2 * MIB, MIB / 2, None),
            (MIB, 2 * MIB, MIB, Some((2 * MIB, 4 * MIB))),
            (8 * MIB, 16 * MIB, 16 * MIB, Some((16 * MIB, 16 * MIB))),
            (16 * MIB, 16 * MIB, 16 * MIB, None),
            (32 * MIB, 64 * MIB, 32 * MIB, None),
        ] {
            assert_eq!(widened(stream, connection, received as usize), widened_to, "{stream} {received}");
        }
    }
}
