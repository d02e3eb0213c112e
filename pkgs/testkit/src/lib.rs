//! What test suites of several crates share. It is in no program.
//!
//! - [`Server`]: a program of ours, started as by hand; [`Metrics`]: what it counts.
//! - [`client`]: a connection of HTTP/1.1 that sends exactly the bytes it is told to.
//! - [`until`], [`wait_for`], `eventually` (feature `runtime`): waiting for what another process does.
//! - `certificate`: a certificate that signs itself, and its files (feature `certificate`).
//! - [`mmdb`]: a small file of which country addresses are in.
//! - [`allocations`]: how often code asks for memory.
#![deny(unsafe_code)]

mod allocations;
#[cfg(feature = "certificate")]
mod certificate;
pub mod client;
mod metrics;
mod mmdb;
mod server;
mod wait;

pub use allocations::{Counting, allocations};
#[cfg(feature = "certificate")]
pub use certificate::{Certificate, certificate};
pub use metrics::Metrics;
pub use mmdb::mmdb;
pub use server::{Launch, Server, binary};
#[cfg(feature = "runtime")]
pub use wait::eventually;
pub use wait::{until, wait_for};
