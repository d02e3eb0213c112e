//! The life and end of connections: deadlines, draining, the cut.

mod connection_registry;
pub mod drain;
mod times;

pub use connection_registry::{ConnectionDeadline, ConnectionRegistry};
pub use times::{DRAIN_GRACE, DrainTimes, LINGER, TICK, ticks};
