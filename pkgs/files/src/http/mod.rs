//! HTTP according to RFC 9110, 9111 and 9112, without I/O.
//!
//! - [`head`]: the head of a request, and where it ends.
//! - [`path`]: the path it names.
//! - [`date`]: times in HTTP's format.
//! - [`conditional`]: conditional requests.
//! - [`range`]: the requested ranges.
//! - [`encoding`]: the content coding.
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
