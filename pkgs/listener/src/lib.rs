//! The network front of a service: HTTP/1.1, HTTP/2 and TLS, on one thread, one runtime and one listening
//! socket a core.
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
//! - [`Config`]: endpoints, limits, certificates; what there is to set, with its default.
//! - [`Listener`]: binds, then serves until told to stop, then drains.
//! - [`HttpService`]: what is served: any `tower` service of requests, such as a router.
//! - [`FastPath`]: what answers plain requests of HTTP/1.1 and HTTP/3 beside it, before anything is made of them.
//! - [`Body`]: a request's body, whatever it came by, within the limits.
//! - [`Config::access_log`]: a line for each request; answers that are errors have its id, a
//!   [`Problem`](service::problem::Problem) in their extensions as well.
//! - [`Peer`]: who asks; in every request's extensions.
//! - [`tls`]: certificates that are replaced while in use; [`ktls`]: connections that the kernel encrypts.
//! - [`metrics`]: what is counted, once a connection.
#![deny(unsafe_code)]

pub mod body;
// Socket options and control messages of TLS have no safe binding.
#[allow(unsafe_code)]
pub mod ktls;
pub mod metrics;
pub mod tls;

mod accept;
mod config;
mod connection;
mod connection_fields;
mod date;
mod drain;
mod fast_path;
mod http1;
mod http2;
mod life;
mod limits;
mod listen;
mod peer;
pub mod proxy;
mod quic;
mod reading;
mod refusal;
mod service_trait;
mod sockets;
mod sockopt;
mod stream;
mod trail;
mod worker;

/// What is fuzzed, and of no use to anybody else.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::http1::head;
    pub use request_head::chunked;
}

pub use body::Body;
pub use config::{
    Admission, CertificateFiles, Config, Endpoint, Guest, Http2, Limits, Offload, Offloaded, Refusals,
    Runtime, Speaks, Tcp, Tls,
};
pub use fast_path::{Connection, Exchange, FastPath, WithFastPath};
pub use listen::{Error, Listener};
pub use peer::{Peer, PeerInfo, Protocol, TlsInfo};
pub use service_trait::{BoxError, HttpService};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
