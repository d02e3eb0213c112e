//! The harness of the services' benches.
//!
//! A bench starts its servers, loads them in turn within one run, and prints one table: requests per second and latency
//! as the client saw them, and the server's CPU time per request.
//!
//! - [`setup`]: the programs a bench needs, and its own network namespace.
//! - [`server`]: a process to measure; stopped with all its children when dropped.
//! - [`postgres`]: a PostgreSQL of its own.
//! - [`gateway`]: its own object storage.
//! - [`proxy`]: nginx and HAProxy in front of a program under test.
//! - [`usage`]: CPU time and memory of a process tree.
//! - [`client`]: a small client for single requests, and for requesting many paths once each.
//! - [`wrk`]: load, and its result; [`h2load`]: the same over HTTP/2 and TLS; `h3load`: over HTTP/3;
//!   `tlsload`: handshakes, and idle connections.
//! - `certificate`: the servers' certificate.
//! - [`rounds`]: servers loaded in turn, and the medians.
//! - [`report`]: the table, the targets and the JSON.
//! - [`chart`]: the bars.
//! - [`skip`]: reports what can't run here.
//! - [`entry`]: the start and end of each bench.
//! - [`peers`]: what every bench is compared with: nginx, a constant actix-web handler, and the floor.
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
