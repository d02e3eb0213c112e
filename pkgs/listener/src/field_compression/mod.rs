//! The common parts of HPACK (RFC 7541) and QPACK (RFC 9204), without a dynamic table.
//!
//! - [`Section`]: the lines of a field section.
//! - [`primitives`]: reads and writes integers and strings.
//! - [`huffman`]: the code of strings.

pub mod huffman;
pub mod primitives;
pub mod section;
#[cfg(test)]
pub mod testing;

pub use section::{Section, Text};
