//! Turns a request into an answer, without I/O.
//!
//! - [`builder`]: access, rules and look-up.
//! - `file`: answers for what was found; `archive`: a directory as one file.
//! - [`built`]: the head as bytes, and what follows it; [`multipart`]: several ranges of a file.
//! - [`common_headers`]: the end of heads.
//! - [`pending`]: the work that an answer waits for.

mod archive;
pub mod builder;
pub mod built;
pub mod common_headers;
mod file;
pub mod multipart;
pub mod pending;
