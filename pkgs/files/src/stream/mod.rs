//! Bodies that are written as their clients take them.
//!
//! - [`source`]: what writes one, a block at a time.
//! - [`pool`]: the threads on which it does.

pub mod pool;
pub mod source;
