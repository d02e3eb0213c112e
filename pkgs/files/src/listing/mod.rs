//! Directories as pages and as JSON, written as their clients take them.
//!
//! - [`request`]: what is listed.
//! - [`writer`]: reads a directory, in order, in bounded memory; [`render`]: what it writes.

mod render;
pub mod request;
pub mod writer;
