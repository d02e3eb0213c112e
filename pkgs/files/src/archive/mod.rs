//! A directory and everything below it as a single file.
//!
//! - [`planner`]: threads that find out what an archive contains before its head is sent, and the limit of archives at
//!   once.
//! - [`plan`]: the content of an archive.
//! - [`name`]: the names of its entries.
//! - [`writer`]: writes an archive block by block; `zip` and `tar`: the formats.

pub mod name;
pub mod permit;
pub mod plan;
pub mod planner;
mod sink;
mod tar;
pub mod writer;
mod zip;
