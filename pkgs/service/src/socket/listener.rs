//! A listening socket of any kind.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use super::Address;

/// A non-blocking socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On TCP.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// The address, with the port that the kernel chose if it was to choose.
    pub fn address(&self) -> Option<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(Address::Tcp),
            Self::Unix(listener) => {
                listener.local_addr().ok()?.as_pathname().map(|path| Address::Unix(path.into()))
            }
        }
    }

    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(listener) => listener.try_clone().map(Self::Tcp),
            Self::Unix(listener) => listener.try_clone().map(Self::Unix),
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }
}
