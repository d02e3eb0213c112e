//! The stream of a connection that was accepted.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use super::LazyTcpStream;

/// A connection that was accepted.
pub enum AcceptedStream {
    /// By TCP.
    Tcp(LazyTcpStream),
    /// By a Unix socket.
    Unix(OwnedFd),
}

impl AcceptedStream {
    /// The address of this end.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}
