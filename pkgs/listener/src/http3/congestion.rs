//! Congestion control, which also reports how much a client has not acknowledged.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};

use crate::quic_driver::Connection;

/// CUBIC (RFC 9438), quinn's own default.
#[derive(Debug, Default)]
pub(crate) struct Congestion(Arc<CubicConfig>);

/// The state of one connection.
struct Observed {
    cubic: Box<dyn Controller>,
    /// An upper bound of the sent bytes that are not acknowledged. Until the next acknowledgement, it includes packets
    /// that need none.
    unacknowledged: u64,
}

/// Whether this connection's client has acknowledged all but `most` bytes of what was sent, and nothing waits to be
/// sent. Waiting data would fill the congestion window, so at most half of that may be unacknowledged, however small it
/// is after losses.
pub(super) fn is_acknowledged(quic: &Connection, most: u64) -> bool {
    quic.congestion_state()
        .into_any()
        .downcast::<Observed>()
        .is_ok_and(|observed| observed.unacknowledged <= most.min(observed.window() / 2))
}

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Observed { cubic: Arc::clone(&self.0).build(now, mtu), unacknowledged: 0 })
    }
}

impl Controller for Observed {
    fn on_sent(&mut self, now: Instant, bytes: u64, last: u64) {
        self.unacknowledged = self.unacknowledged.saturating_add(bytes);
        self.cubic.on_sent(now, bytes, last);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.unacknowledged = in_flight;
        self.cubic.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost: u64) {
        self.cubic.on_congestion_event(now, sent, persistent, lost);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.cubic.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { cubic: self.cubic.clone_box(), unacknowledged: self.unacknowledged })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
