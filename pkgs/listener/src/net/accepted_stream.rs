//! The stream of an accepted connection.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use super::LazyTcpStream;

/// An accepted connection.
pub enum AcceptedStream {
    /// Over TCP.
    Tcp(LazyTcpStream),
    /// Over a Unix socket.
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
