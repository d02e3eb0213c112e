//! HTTP/3 (RFC 9114), by h3 on quinn's connections: the same service as over TCP.
//!
//! - [`serve`]: the requests of one connection, until either side has had enough.
//! - `fast_path`, `qpack`: plain requests, which the fast path answers before h3 sees them.
//! - `context`, `error_code`: what requests share; codes of errors.
//! - `request`: a request to the service, its response to the client.
//! - `body`: request bodies.
//! - `transport`, `frames`: what h3 needs of quinn, and what it does not look at itself.
//! - `send_window`: how much a client is sent before it acknowledges.
//! - `stall_detector`: whether a client takes what it is sent.

mod body;
mod connection;
mod context;
mod error_code;
mod fast_path;
mod frames;
pub mod qpack;
mod request;
mod send_window;
mod stall_detector;
mod transport;

pub(crate) use connection::serve;
pub(crate) use error_code::varint;
pub(crate) use send_window::SEND_WINDOW;
