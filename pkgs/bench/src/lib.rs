//! The harness the services' benches share.
//!
//! A bench starts its servers, loads them in turn within one run, and prints one table: requests a
//! second and latency as the client saw them, and the CPU time each request cost the server.
//!
//! - [`setup`]: the programs a bench needs, and a network namespace of its own.
//! - [`server`]: a process that is measured; stopped with all its children when dropped.
//! - [`postgres`]: a PostgreSQL of one's own.
//! - [`gateway`]: object storage of one's own.
//! - [`proxy`]: nginx and HAProxy in front of a program under test.
//! - [`usage`]: CPU time and memory of a process tree.
//! - [`client`]: a small client for single requests and for visiting each of many paths once.
//! - [`wrk`]: load, and what came of it; [`h2load`]: the same over HTTP/2 and TLS; `h3load`: over HTTP/3;
//!   `tlsload`: handshakes, and connections that are idle.
//! - `certificate`: what the servers prove themselves by.
//! - [`rounds`]: servers loaded in turn, and the medians.
//! - [`report`]: the table, the targets and the JSON.
//! - [`chart`]: the bars.
//! - [`skip`]: what cannot run here, said aloud.
//! - [`entry`]: what each bench begins and ends with.
//! - [`peers`]: what every bench compares with: nginx, a constant actix-web handler, and the floor.
#![forbid(unsafe_code)]

#[cfg(feature = "tls")]
pub mod certificate;
pub mod chart;
pub mod client;
pub mod entry;
mod loads;
pub mod peers;
mod programs;
pub mod proxy;
pub mod report;
pub mod rounds;
pub mod skip;
pub mod usage;

#[cfg(feature = "tls")]
pub mod anybody;
mod error;

#[cfg(feature = "http3")]
pub use loads::h3load;
use loads::load;
#[cfg(feature = "tls")]
pub use loads::tlsload;
pub use loads::{h2load, wrk};
pub use programs::{gateway, postgres, server, setup};

pub use error::Error;
pub use skip::skipped;
