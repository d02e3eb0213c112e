//! Finds free ports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener};

use serde::Serialize;

/// How many ports are tried before giving up.
const ATTEMPTS: usize = 16;

/// How many ports are needed.
const PORTS: usize = 8;

/// The ports of links, files, api and the console: for each, the public port and the operator's. All documentation uses
/// them.
const USUAL: [u16; PORTS] = [8080, 8081, 8090, 8091, 8100, 8101, 8110, 8111];

/// A port that is taken, and the one that is used instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReassignedPort {
    /// The usual one.
    pub from: u16,
    /// The one used instead.
    pub to: u16,
}

/// Each service's addresses on loopback: the public one, and the operator's.
#[derive(Debug)]
pub struct Ports {
    /// linerate-links.
    pub links: (SocketAddr, SocketAddr),
    /// linerate-files.
    pub files: (SocketAddr, SocketAddr),
    /// linerate-api.
    pub api: (SocketAddr, SocketAddr),
    /// linerate-console.
    pub console: (SocketAddr, SocketAddr),
    /// Ports that differ from the usual ones.
    pub moved: Vec<ReassignedPort>,
    /// Keeps other runs of `up` from taking them.
    _claims: Vec<UnixListener>,
}

impl Ports {
    /// The usual ports, with free ones in place of those that are taken.
    pub fn usual() -> io::Result<Self> {
        Self::choose(USUAL)
    }

    /// Any free ports.
    pub fn any() -> io::Result<Self> {
        Self::choose([0; PORTS])
    }

    /// All ports are held until the last one is chosen, so that no two are the same. Another program may still take a
    /// port before its service listens on it; the service then fails with an error. The claims last as long as this
    /// value, so that another `up` doesn't take the ports.
    fn choose(wanted: [u16; PORTS]) -> io::Result<Self> {
        let held = wanted.into_iter().map(hold).collect::<io::Result<Vec<_>>>()?;
        let (listeners, claims): (Vec<TcpListener>, Vec<UnixListener>) = held.into_iter().unzip();
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        let pair = |first: usize| (addresses[first], addresses[first + 1]);
        let chosen =
            USUAL.iter().zip(&addresses).map(|(&from, address)| ReassignedPort { from, to: address.port() });
        let moved = chosen.filter(|ReassignedPort { from, to }| from != to).collect();
        Ok(Self { links: pair(0), files: pair(2), api: pair(4), console: pair(6), moved, _claims: claims })
    }
}

/// Holds and claims a port, or a free one if it is taken.
fn hold(wanted: u16) -> io::Result<(TcpListener, UnixListener)> {
    let mut taken = io::Error::from(io::ErrorKind::AddrInUse);
    for port in std::iter::once(wanted).chain(std::iter::repeat_n(0, ATTEMPTS)) {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .and_then(|listener| Ok((claim(listener.local_addr()?.port())?, listener)));
        match held {
            Ok((claim, listener)) => return Ok((listener, claim)),
            Err(error) => taken = error,
        }
    }
    Err(taken)
}

/// Binds a name that only one process at a time can have (unix(7), abstract sockets). It disappears with the process.
fn claim(port: u16) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(format!("linerate-up/{port}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ports: &Ports) -> Vec<u16> {
        let Ports { links, files, api, console, .. } = ports;
        let pairs = [links, files, api, console];
        pairs.into_iter().flat_map(|pair| [pair.0.port(), pair.1.port()]).collect()
    }

    #[test]
    fn a_port_that_is_taken_is_replaced_by_another() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = taken.local_addr().expect("an address").port();
        let mut ports = numbers(&Ports::choose([port; PORTS]).expect("ports"));
        ports.sort_unstable();
        assert!(!ports.contains(&port) && ports.windows(2).all(|two| two[0] != two[1]), "{ports:?}");
    }

    #[test]
    fn ports_are_nobody_elses_before_a_service_listens_there() {
        let first = Ports::any().expect("ports");
        let wanted: [u16; PORTS] = numbers(&first).try_into().expect("as many");
        let second = Ports::choose(wanted).expect("ports");
        assert!(numbers(&second).iter().all(|port| !wanted.contains(port)), "{second:?}");
    }
}
