//! Helpers that test suites of several crates share. No program includes them.
//!
//! - [`Server`]: starts one of our programs as a user would; [`Metrics`]: its metrics.
//! - [`client`]: an HTTP/1.1 connection that sends exactly the bytes it is given.
//! - [`until`], [`wait_for`], `eventually` (feature `runtime`): wait for what another process does.
//! - [`uninterrupted`]: repeats a call that a signal interrupted.
//! - `certificate`: a self-signed certificate, and its files (feature `certificate`).
//! - `logged`: the lines of a log (feature `logs`).
//! - [`own_address`]: an address that nobody else uses.
//! - [`mod@mmdb`]: a small file with the countries of addresses.
//! - [`mod@noise`]: bytes that do not compress.
//! - [`mod@allocations`]: how often code allocates memory.
#![deny(unsafe_code)]

mod address;
mod allocations;
#[cfg(feature = "certificate")]
mod certificate;
pub mod client;
mod interruption;
#[cfg(feature = "logs")]
mod logged;
mod metrics;
mod mmdb;
mod noise;
mod server;
mod wait;

pub use address::own_address;
pub use allocations::{Counting, allocations};
#[cfg(feature = "certificate")]
pub use certificate::{Certificate, certificate};
pub use interruption::uninterrupted;
#[cfg(feature = "logs")]
pub use logged::logged;
pub use metrics::Metrics;
pub use mmdb::mmdb;
pub use noise::noise;
pub use server::{Launch, Server, binary};
#[cfg(feature = "runtime")]
pub use wait::eventually;
pub use wait::{until, wait_for};
