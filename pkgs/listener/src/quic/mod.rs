//! HTTP/3: QUIC by quinn, HTTP by h3, the same service as over TCP.
//!
//! - [`serve`]: the endpoint of one worker on one address: admits connections, drains.
//! - `setup`: what the workers of one address share: keys, limits, windows.
//! - `steer`, `cid`: a connection stays with its worker, wherever the kernel delivers its datagrams.
//! - `gather`: what is sent, in as few calls as can be.
//! - `succession`: and with its process, when another takes over the sockets.
//! - `connection`: the requests of one connection, until either side has had enough.
//! - `fast`, `qpack`: plain requests, which the fast path answers before h3 sees them.
//! - `context`, `code`: what requests share; codes of errors.
//! - `request`: a request to the service, its response to the client.
//! - `body`: request bodies.
//! - `transport`, `frames`: what h3 needs of quinn, and what it does not look at itself.
//!
//! 0-RTT is off: what arrives in it can be replayed (RFC 9001, section 9.2), and a service does not see which
//! requests did.

mod body;
mod cid;
mod code;
mod connection;
mod context;
mod endpoint;
mod fast;
mod frames;
mod gather;
mod qpack;
mod request;
mod setup;
mod stall;
mod steer;
mod succession;
mod transport;

pub(crate) use endpoint::{Socket, serve};
