//! The code that all linerate services share.
//!
//! ```text
//!  start   settings ─▶ logs ─▶ socket, handover, tls ─▶ workers ─▶ ready: systemd, /readyz
//!  serve   proxies ─▶ allowed_hosts ─▶ rate_limit ─▶ the service ─▶ access_log, metrics, problem
//!  beside  admin: /healthz, /readyz, /metrics
//!  end     shutdown: drain, or handover to who comes next ─▶ exit
//! ```
//!
//! - [`settings`]: one definition of each setting; defaults < TOML file < credentials < environment < flags.
//! - [`access_log`]: a JSON line for each request and each write.
//! - [`rate_limit`]: rate limits by any key; [`address_limits`]: limits per connected address.
//! - [`limits`]: flags that limit what clients may take and how long.
//! - [`request_id`], [`traceparent`]: a request's id, and the caller's trace.
//! - [`logs`]: tracing to stderr, as text or JSON, or compiled out.
//! - [`metrics`]: Prometheus exposition, with counters that cost a hot path one plain store.
//! - [`allowed_hosts`]: the hosts for which a server without keys accepts requests.
//! - [`admin`]: health and metrics on an admin listener.
//! - [`health`]: the answers of `/healthz` and `/readyz`.
//! - [`ready`]: whether the service can answer, for systemd and `/readyz`.
//! - [`proxies`]: proxies in front, and the client's address behind them.
//! - [`shutdown`]: SIGTERM drains, and a second signal exits at once.
//! - [`handover`]: one process takes over another's sockets and place.
//! - [`descriptors`]: file descriptors reserved for accepted connections.
//! - [`socket`]: addresses to listen on: TCP, Unix, or handed over by systemd or another process.
//! - [`tls`]: addresses and certificates for TLS.
//! - `certificate`: a certificate's names, and when it ends.
//! - [`workers`]: the number of workers, and the CPU of each.
//! - [`problem`]: RFC 9457 error bodies.
//! - [`panics`]: a panic is logged and counted, and ends only one connection.
//! - `password`: argon2id hashes.
//! - [`permissions`]: makes databases private to their owner.
//! - [`exit`]: exit codes, and errors as one line.
//! - `output`: the output of commands, for people and programs.
//! - `manual`: shell completions and manual pages.
//! - `openapi`: a page that shows an API's description to people.
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
