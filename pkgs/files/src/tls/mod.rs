//! The listener for TLS: HTTP/1.1, HTTP/2 and HTTP/3 through `listener`.
//!
//! - [`service`](mod@service): answers its requests.
//! - [`body`]: what it sends, which passes through user space to be encrypted.

pub mod body;
pub mod service;
