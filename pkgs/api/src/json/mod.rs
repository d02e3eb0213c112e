//! JSON texts from strangers.
//!
//! - [`checked`]: reads a text within bounds, in one pass.
//! - [`scan`]: why a text is refused: what in it is no JSON or out of bounds, and where.
//! - [`faults`]: what is wrong with a document, each with a pointer (RFC 6901).
//! - [`object`]: objects of known members: read, judged member by member.
//! - [`text`]: texts that stay where they were received.
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
