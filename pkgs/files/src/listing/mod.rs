//! Directories as pages and JSON, written as clients take them.
//!
//! - [`request`]: the listing requested.
//! - [`writer`]: reads a directory in order, in bounded memory; [`render`]: formats it.

mod render;
pub mod request;
pub mod writer;
