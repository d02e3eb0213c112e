//! Ports that are free.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener};

use serde::Serialize;

/// How many ports are tried before it is said that there is none.
const ATTEMPTS: usize = 16;

/// How many there are.
const PORTS: usize = 8;

/// The ports of links, files, api and the console, for everybody and for the operator, as everything that is written about
/// them has them.
const USUAL: [u16; PORTS] = [8080, 8081, 8090, 8091, 8100, 8101, 8110, 8111];

/// A port that somebody else has, and the one that is used instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReassignedPort {
    /// The usual one.
    pub from: u16,
    /// The other.
    pub to: u16,
}

/// Where each service listens on loopback: for everybody, and for its operator.
#[derive(Debug)]
pub struct Ports {
    /// Of links.
    pub links: (SocketAddr, SocketAddr),
    /// Of files.
    pub files: (SocketAddr, SocketAddr),
    /// Of the API.
    pub api: (SocketAddr, SocketAddr),
    /// Of the console.
    pub console: (SocketAddr, SocketAddr),
    /// Those that are not the usual ones.
    pub moved: Vec<ReassignedPort>,
    /// What keeps others of us from them.
    _claims: Vec<UnixListener>,
}

impl Ports {
    /// The usual ones, and any where those are taken.
    pub fn usual() -> io::Result<Self> {
        Self::choose(USUAL)
    }

    /// Any.
    pub fn any() -> io::Result<Self> {
        Self::choose([0; PORTS])
    }

    /// All are held until the last is chosen, so that no two are the same. Between that and a service's own listening
    /// somebody else may take one; then the service says so and ends. So that another `up` is not who does that, ours are
    /// claimed as long as this lives.
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

/// Holds a port and claims it, or another where that is taken.
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

/// A name that one process at a time can have (unix(7), abstract sockets), and that ends with it.
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
