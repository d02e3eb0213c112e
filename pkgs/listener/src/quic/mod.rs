//! QUIC: the endpoint of one worker on one address, and what keeps connections with their worker.
//!
//! - [`serve`]: admits connections, drains.
//! - `shared`: what the workers of one address share: keys, limits, windows.
//! - `cid_demux`, `cid`: a connection stays with its worker, wherever the kernel delivers its datagrams.
//! - `hot_restart`: a connection stays with its process when another takes over the sockets.
//!
//! 0-RTT is off: its requests can be replayed (RFC 9001, section 9.2), and a service cannot tell which ones used it.

mod cid;
mod cid_demux;
mod endpoint;
mod hot_restart;
mod shared;

pub(crate) use endpoint::{Socket, serve};
