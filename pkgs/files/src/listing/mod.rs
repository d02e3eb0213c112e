//! Directory listings as pages and JSON, written at the client's pace.
//!
//! - [`request`]: the requested listing.
//! - [`writer`]: reads a directory in order, in bounded memory; [`render`]: formats it.

mod render;
pub mod request;
pub mod writer;
