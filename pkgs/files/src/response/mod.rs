//! From a request to an answer, without input or output.
//!
//! - [`builder`]: who may have it, where the rules lead it, what it names.
//! - `file`: the answer about what is there; `archive`: a directory as one file.
//! - [`built`]: the head as bytes, and what is to follow it; [`multipart`]: several ranges of a file.
//! - [`common_headers`]: what heads end with.
//! - [`pending`]: what an answer has to wait for.

mod archive;
pub mod builder;
pub mod built;
pub mod common_headers;
mod file;
pub mod multipart;
pub mod pending;
