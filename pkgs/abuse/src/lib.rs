//! Clients that drip, stall, flood and nest, against the real services.
//!
//! - [`model`]: a plain model of HTTP/1.1, written only from RFC 9112, and [`conversation`]s that check listeners
//!   against it.
//! - [`program`]: the services, as processes; [`promise`]: the memory limits in their modules.
//! - [`client`], [`secure`], [`http2`] and [`http3`]: clients that send exactly what they are given; [`crowd`]: many of
//!   them.
//!
//! Only for tests. Errors here panic, and say what was being done.
#![forbid(unsafe_code)]

pub mod client;
pub mod conversation;
pub mod crowd;
pub mod http2;
pub mod http3;
pub mod model;
pub mod program;
pub mod promise;
pub mod random;
pub mod secure;
