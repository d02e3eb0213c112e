//! HTTP as RFC 9110, 9111 and 9112 have it, without any input or output.
//!
//! - [`head`]: the head of a request, and where it ends.
//! - [`path`]: the path it names.
//! - [`date`]: when, as HTTP writes it.
//! - [`conditional`]: whether the client has what it asks for already.
//! - [`range`]: which parts of it are wanted.
//! - [`encoding`]: in which coding.
//! - [`status`]: the phrases of status codes.

pub mod conditional;
pub mod date;
pub mod encoding;
pub mod head;
pub mod listing_query;
pub mod media_type;
pub mod path;
pub mod range;
pub mod status;
