//! The process itself: start, workers, descriptors and end.

pub mod descriptors;
pub mod exit;
pub mod panics;
pub mod permissions;
pub mod shutdown;
pub(crate) mod start_code;
pub mod workers;
