//! The TLS listener: HTTP/1.1, HTTP/2 and HTTP/3 through `listener`.
//!
//! - [`service`](mod@service): answers its requests.
//! - [`body`]: what it sends, which passes through user space to be encrypted.
//! - [`cold`]: reads of that by io_uring, where it is not in memory.

pub mod body;
pub mod cold;
pub mod service;
