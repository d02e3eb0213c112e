//! How long connections live, and how they end: deadlines, draining, the cut.

mod connection_registry;
pub mod drain;

pub use connection_registry::{ConnectionDeadline, ConnectionRegistry, TICK};
