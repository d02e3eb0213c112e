//! The network front of a service: HTTP/1.1, HTTP/2, HTTP/3 and TLS, with one thread, one runtime and one listening
//! socket per core.
//!
//! ```text
//!        server: accept ─▶ limits ─▶ net: PROXY ─▶ tls ─┬─▶ http1 ─┐   http_service
//!   TCP, Unix ─▶                                │       └─▶ http2 ─┼─▶ fast path ─▶ bytes ───────▶ client
//!                                               ▼                  │    └ declines: body ─▶ service
//!                                            offload               │                         └▶ response ─▶ client
//!   UDP ─▶ quic: cid_demux ─▶ limits ─▶ quic_driver ──────▶ http3 ─┘
//!
//!   on each worker: worker_context (what all of it shares), lifecycle (deadlines, draining, the cut), metrics
//! ```
//!
//! ```no_run
//! use listener::{Body, Config, Endpoint, Listener};
//! use service::shutdown::Shutdown;
//! # fn router() -> tower_service_stub::Router { unimplemented!() }
//! # mod tower_service_stub {
//! #     use std::{convert::Infallible, future::{Ready, ready}, task::{Context, Poll}};
//! #     #[derive(Clone)]
//! #     pub struct Router;
//! #     impl tower_service::Service<http::Request<listener::Body>> for Router {
//! #         type Response = http::Response<listener::Body>;
//! #         type Error = Infallible;
//! #         type Future = Ready<Result<Self::Response, Infallible>>;
//! #         fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
//! #         fn call(&mut self, _: http::Request<listener::Body>) -> Self::Future { ready(Ok(Default::default())) }
//! #     }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config { endpoints: vec![Endpoint::plain(":8080".parse()?)], ..Config::default() };
//! let shutdown = Shutdown::on_signals()?;
//! Listener::new(config)?.serve(router(), shutdown)?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Config`]: all settings with their defaults: endpoints, limits, certificates.
//! - [`Listener`]: binds, serves until told to stop, then drains.
//! - [`HttpService`]: what is served: any `tower` service of requests, such as a router.
//! - [`FastPath`]: answers plain requests beside the service, without a request object.
//! - [`Body`]: a request's body over any protocol, within the limits.
//! - [`Config::access_log`]: a line for each request. Answers that are errors have its id, also in a
//!   [`Problem`](service::problem::Problem) in their extensions.
//! - [`Peer`]: the client, in every request's extensions.
//! - [`tls`]: certificates that can be replaced while in use; [`ktls`]: connections that the kernel encrypts.
//! - [`metrics`]: counters, updated once per connection.
#![deny(unsafe_code)]

// Configuration and hooks.
mod config;
mod early_hints;
mod error;
mod offload;

// From a socket to a request.
mod field_compression;
mod http1;
mod http2;
mod http3;
mod net;
mod plain;
mod quic;
mod quic_driver;
mod server;
pub mod tls;

// What a request passes through.
pub mod body;
mod http_service;
mod peer;
mod response;

// The state of workers.
mod lifecycle;
mod limits;
pub mod metrics;
mod worker_context;

/// Entry points for fuzz targets, not for other use.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::field_compression::{Section, huffman};
    pub use crate::http1::decode;
    pub use crate::http2::fast_path::hpack;
    pub use crate::http3::qpack;
    pub use request_head::chunked;
}

pub use body::Body;
pub use config::{CertificateFiles, Config, Endpoint, EndpointProtocol, Http2, Limits, Refusals, Tcp, Tls};
pub use early_hints::EarlyHints;
pub use error::Error;
pub use http_service::{BoxError, Connection, Exchange, FastAnswer, FastPath, HttpService, WithFastPath};
pub use lifecycle::{DRAIN_GRACE, DrainTimes, LINGER, TICK, ticks};
pub use net::proxy;
pub use offload::{Offload, Offloaded};
pub use peer::{Peer, PeerInfo, Protocol, TlsInfo};
pub use response::{Refusal, date};
pub use server::Listener;
pub use tls::ktls;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
