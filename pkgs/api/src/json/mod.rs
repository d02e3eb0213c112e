//! JSON from clients.
//!
//! - [`checked`]: reads a text within limits in one pass.
//! - [`scan`]: why a text is refused: what is not JSON or exceeds a limit, and where.
//! - [`faults`]: the faults of a document, each with a pointer (RFC 6901).
//! - [`object`]: objects with known members, checked member by member.
//! - [`text`]: texts that are borrowed from the input.
//! - [`merge`]: RFC 7396.

pub mod checked;
pub mod faults;
pub mod merge;
pub mod object;
pub mod scan;
pub mod text;

pub use faults::Faults;
pub use scan::Bounds;
pub use text::Text;
