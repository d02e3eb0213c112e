//! Directories as pages and as JSON, written as their clients take them.
//!
//! - [`request`]: what is listed.
//! - [`writer`]: reads a directory, in order, in bounded memory; [`render`]: what it writes.
//! - [`pool`]: the threads that do.

pub mod pool;
mod render;
pub mod request;
pub mod writer;
