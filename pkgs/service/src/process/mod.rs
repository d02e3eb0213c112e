//! The process itself: how it starts, how much of it there is, and how it ends.

pub mod descriptors;
pub mod exit;
pub mod panics;
pub mod permissions;
pub mod shutdown;
pub mod workers;
