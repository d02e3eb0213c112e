//! Bodies that are written at the client's pace.
//!
//! - [`source`]: writes a body block by block.
//! - [`pool`]: the threads that do so.

pub mod pool;
pub mod source;
