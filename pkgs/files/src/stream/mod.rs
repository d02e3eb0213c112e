//! Bodies that are written at the client's pace.
//!
//! - [`source`]: writes a body block by block.
//! - [`pool`]: the threads for that.

pub mod pool;
pub mod source;
