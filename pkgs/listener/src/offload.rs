//! Connections that other code serves once the kernel encrypts them.

use std::fmt::Debug;
use std::os::fd::OwnedFd;

use service::address_limits::AddressPermit;

use crate::peer::Peer;

/// Takes over connections on which the kernel does TLS ([`ktls`](crate::ktls)), for services that send the kernel's
/// data without touching it, such as files.
pub trait Offload: Debug + Send + Sync {
    /// Serves this connection from now on.
    fn take(&self, connection: Offloaded);
}

/// An HTTP/1.1 connection over TLS that carries plain bytes on this side, since the kernel has its keys.
#[derive(Debug)]
pub struct Offloaded {
    /// Non-blocking.
    pub socket: OwnedFd,
    /// The client.
    pub peer: Peer,
    /// Its permit of the limit per address; none without a limit.
    pub address: Option<AddressPermit>,
    /// Bytes that were already received, at most a record's 16 KiB.
    pub received: Vec<u8>,
    /// The line of answers that announces HTTP/3, with its line end. Empty without HTTP/3.
    pub alt_svc: Box<[u8]>,
}
