//! QUIC, by quinn: the endpoint of one worker on one address, and what connections need to stay with their worker.
//!
//! - [`serve`]: admits connections, drains.
//! - `shared`: what the workers of one address share: keys, limits, windows.
//! - `cid_demux`, `cid`: a connection stays with its worker, wherever the kernel delivers its datagrams.
//! - `gso_batch`: what is sent, in as few calls as can be.
//! - `hot_restart`: a connection stays with its process, when another takes over the sockets.
//!
//! 0-RTT is off: what arrives in it can be replayed (RFC 9001, section 9.2), and a service does not see which
//! requests did.

mod cid;
mod cid_demux;
mod endpoint;
mod gso_batch;
mod hot_restart;
mod shared;

pub(crate) use endpoint::{Socket, serve};
