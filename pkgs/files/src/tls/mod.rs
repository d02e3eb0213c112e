//! The TLS listener: HTTP/1.1, HTTP/2 and HTTP/3 through `listener`.
//!
//! - [`service`](mod@service): answers requests; [`fast_path`]: answers those for small files in memory.
//! - [`body`]: bodies, which pass through user space for encryption.
//! - [`cold`]: reads them with io_uring if they aren't in memory.

pub mod body;
pub mod cold;
pub mod fast_path;
pub mod service;
