//! HTTP/3 (RFC 9114), with h3 on the connections of `quic_driver`: the same service as over TCP.
//!
//! - [`serve`]: the requests of one connection, until either side ends it.
//! - `fast_path`, `qpack`: plain requests, which the fast path answers before h3 sees them.
//! - `qpack_streams`: the client's QPACK streams, which h3 does not read.
//! - `context`, `error_code`: the state that requests share; error codes.
//! - `request`: passes a request to the service, and its response to the client.
//! - `body`: request bodies.
//! - `transport`, `frames`: the interface between h3 and `quic_driver`, and checks that h3 does not do.
//! - `congestion`: congestion control, and how much a client has not acknowledged.
//! - `send_window`: how much it may be sent before it acknowledges.
//! - `stall_detector`: detects clients that take nothing.

mod body;
mod congestion;
mod connection;
mod context;
mod error_code;
mod fast_path;
mod frames;
pub mod qpack;
mod qpack_streams;
mod request;
mod send_window;
mod stall_detector;
mod transport;

pub(crate) use congestion::Congestion;
pub(crate) use connection::serve;
pub(crate) use error_code::varint;
pub(crate) use send_window::LEAST as LEAST_SEND_WINDOW;
