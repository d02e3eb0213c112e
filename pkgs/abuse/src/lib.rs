//! What drips, stalls, floods and nests, against the real services.
//!
//! - [`model`]: a plain model of HTTP/1.1, written from RFC 9112 alone, and [`conversation`]s to hold listeners
//!   against it.
//! - [`program`]: the services, as processes; [`promise`]: the memory that their modules grant them.
//! - [`client`], [`secure`], [`http2`] and [`http3`]: clients that send what they are told to; [`crowd`]: many of them.
//!
//! Of use to tests alone. What goes wrong here panics, with what was going on.
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
