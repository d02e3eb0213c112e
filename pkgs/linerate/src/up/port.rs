//! Ports that are free.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Where each service listens on loopback: for everybody, and for its operator.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Of links.
    pub links: (SocketAddr, SocketAddr),
    /// Of files.
    pub files: (SocketAddr, SocketAddr),
    /// Of the API.
    pub api: (SocketAddr, SocketAddr),
}

impl Ports {
    /// The usual ones, and any where those are taken.
    pub fn usual() -> io::Result<Self> {
        Self::choose([8080, 8081, 8090, 8091, 8070, 8071])
    }

    /// Any.
    pub fn any() -> io::Result<Self> {
        Self::choose([0; 6])
    }

    /// All are held until the last is chosen, so that no two are the same. Between that and a service's own listening
    /// somebody else may take one; then the service says so.
    fn choose(wanted: [u16; 6]) -> io::Result<Self> {
        let bind = |port| {
            let there = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
            there.or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        };
        let held = wanted.map(bind);
        let mut addresses = Vec::with_capacity(held.len());
        for listener in held {
            addresses.push(listener?.local_addr()?);
        }
        let pair = |first: usize| (addresses[first], addresses[first + 1]);
        Ok(Self { links: pair(0), files: pair(2), api: pair(4) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_replaced_by_another() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = taken.local_addr().expect("an address").port();
        let Ports { links, files, api } = Ports::choose([port; 6]).expect("ports");
        let mut ports = [links.0, links.1, files.0, files.1, api.0, api.1].map(|address| address.port());
        ports.sort_unstable();
        assert!(!ports.contains(&port) && ports.windows(2).all(|two| two[0] != two[1]), "{ports:?}");
    }
}
