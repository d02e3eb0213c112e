//! Bodies that are written as clients take them.
//!
//! - [`source`]: writes a body block by block.
//! - [`pool`]: the threads for that.

pub mod pool;
pub mod source;
