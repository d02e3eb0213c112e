//! What HPACK (RFC 7541) and QPACK (RFC 9204) have in common, as far as they go without a dynamic table.
//!
//! - [`Section`]: the lines of a field section that was read.
//! - [`primitives`]: integers and strings, read and written.
//! - [`huffman`]: the code of strings.

pub mod huffman;
pub mod primitives;
pub mod section;
#[cfg(test)]
pub mod testing;

pub use section::{Section, Text};
