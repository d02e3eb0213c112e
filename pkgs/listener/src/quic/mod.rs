//! QUIC, with quinn-proto: the endpoint of one worker on one address, and what keeps connections with their worker.
//!
//! - [`serve`]: admits connections, drains.
//! - `shared`: what the workers of one address share: keys, limits, windows.
//! - `cid_demux`, `cid`: a connection stays with its worker, wherever the kernel delivers its datagrams.
//! - `driver`: runs a worker's connections on one task, with as few system calls as possible.
//! - `hot_restart`: a connection stays with its process when another takes over the sockets.
//!
//! 0-RTT is off: its requests can be replayed (RFC 9001, section 9.2), and a service cannot tell which ones used it.

mod cid;
mod cid_demux;
mod driver;
mod endpoint;
mod hot_restart;
mod shared;

pub(crate) use driver::{Connection, ReadError, RecvStream, SendStream, WriteError};
pub(crate) use endpoint::{Socket, serve};
