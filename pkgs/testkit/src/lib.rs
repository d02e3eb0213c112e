//! What test suites of several crates share. It is in no program.
//!
//! - [`client`]: a connection of HTTP/1.1 that sends exactly the bytes it is told to.
//! - [`until`], [`wait_for`]: waiting for what another process does.
#![forbid(unsafe_code)]

pub mod client;
mod wait;

pub use wait::{until, wait_for};
