//! Connections that somebody else goes on with, once the kernel encrypts them.

use std::fmt::Debug;
use std::os::fd::OwnedFd;

use service::address_limits::AddressPermit;

use crate::peer::Peer;

/// Takes connections off the listener where the kernel speaks TLS ([`ktls`](crate::ktls)), for a service that sends
/// what the kernel has and it need not see itself, such as files.
pub trait Offload: Debug + Send + Sync {
    /// Serves this connection from now on.
    fn take(&self, connection: Offloaded);
}

/// A connection of HTTP/1.1 over TLS that carries plain bytes on this side: the kernel has its keys.
#[derive(Debug)]
pub struct Offloaded {
    /// Non-blocking.
    pub socket: OwnedFd,
    /// Who is at the other end.
    pub peer: Peer,
    /// What it counts as of its address'; none where that is not limited.
    pub address: Option<AddressPermit>,
    /// What was received already: at most what a record holds, 16 KiB.
    pub received: Vec<u8>,
    /// The line by which answers tell of HTTP/3, with its line end; empty where there is none.
    pub alt_svc: Box<[u8]>,
}
