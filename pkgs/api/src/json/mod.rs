//! JSON texts from strangers.
//!
//! - [`scan`]: whether a text is JSON and within bounds, before anything is built from it.
//! - [`faults`]: what is wrong with a document, each with a pointer (RFC 6901).
//! - [`object`]: objects of known members: read, judged member by member.
//! - [`merge`]: RFC 7396.

pub mod faults;
pub mod merge;
pub mod object;
pub mod scan;

pub use faults::Faults;
pub use scan::Bounds;
