//! What every linerate service shares.
//!
//! ```text
//!  start   settings ─▶ logs ─▶ socket, handover, tls ─▶ workers ─▶ ready: systemd, /readyz
//!  serve   proxies ─▶ allowed_hosts ─▶ rate_limit ─▶ the service ─▶ access_log, metrics, problem
//!  beside  admin: /healthz, /readyz, /metrics
//!  end     shutdown: drain, or handover to who comes next ─▶ exit
//! ```
//!
//! - [`settings`]: one definition of each setting; defaults < TOML file < credentials < environment < flags.
//! - [`access_log`]: a line of JSON for each request, and for each write.
//! - [`rate_limit`]: how often somebody may do something; [`address_limits`]: the same of addresses that are connected.
//! - [`limits`]: flags of what clients may take, and of how long.
//! - [`request_id`], [`traceparent`]: what a request is called, here and in who called.
//! - [`logs`]: tracing to stderr, as text or JSON, or compiled out.
//! - [`metrics`]: Prometheus exposition, with counters that cost a hot path one plain store.
//! - [`allowed_hosts`]: which names a server without keys is asked by.
//! - [`admin`]: what an admin listener serves: health and metrics.
//! - [`health`]: what `/healthz` and `/readyz` answer.
//! - [`ready`]: whether the service can answer, told to systemd and to `/readyz`.
//! - [`proxies`]: which proxies are in front, and whose a connection or a request is behind them.
//! - [`shutdown`]: SIGTERM drains, a second signal does not wait.
//! - [`handover`]: one process takes over the sockets of another, and its place.
//! - [`descriptors`]: which are kept free for those who are let in.
//! - [`socket`]: addresses to listen on: TCP, Unix or handed over, by systemd or another process.
//! - [`tls`]: addresses and certificates for TLS.
//! - `certificate`: whom a certificate is for, and when it ends.
//! - [`workers`]: how many workers, and on which CPU each.
//! - [`problem`]: RFC 9457 error bodies.
//! - [`panics`]: logged, counted, and the end of one connection only.
//! - `password`: argon2id hashes.
//! - [`permissions`]: databases are for their owner.
//! - [`exit`]: exit codes, and the one line an error is worth.
//! - `output`: what commands print, for people and for programs.
//! - `manual`: what describes a command line, to shells and readers.
//! - `openapi`: a page for people of an API's description.
#![deny(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod access_log;
pub mod admin;
#[cfg(feature = "certificate")]
pub mod certificate;
mod clients;
mod exchange;
pub mod handover;
pub mod health;
pub mod logs;
mod manager;
#[cfg(feature = "manual")]
pub mod manual;
pub mod metrics;
#[cfg(feature = "output")]
pub mod output;
#[cfg(feature = "password")]
pub mod password;
mod process;
pub mod proxies;
pub mod ready;
pub mod settings;
pub mod socket;
pub mod tls;

pub use clients::{address_limits, allowed_hosts, limits, rate_limit};
#[cfg(feature = "openapi")]
pub use exchange::openapi;
pub use exchange::{problem, request_id, traceparent};
pub use process::{descriptors, exit, panics, permissions, shutdown, workers};
