//! A directory and all below it as one file.
//!
//! - [`planner`]: threads that find out what is in one before its head is sent, and how many there may be at once.
//! - [`plan`]: what is in one.
//! - [`name`]: what entries are called.
//! - [`writer`]: writes one, a block at a time; `zip` and `tar`: how.

pub mod name;
pub mod permit;
pub mod plan;
pub mod planner;
mod sink;
mod tar;
pub mod writer;
mod zip;
