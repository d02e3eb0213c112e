//! Sockets that the previous process hands over, and that this one hands to the next: [`handover`].
//!
//! Each is identified by its kind and the requested address. Ports that the kernel chose are not handed over.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

use super::address::includes;
use super::{Error, Listener, activated};
use crate::handover;

/// The previous process's listening TCP sockets on `address`, non-blocking.
pub(super) fn tcp(address: &str) -> io::Result<Vec<TcpListener>> {
    let listeners = listeners(&name("tcp", address))?;
    Ok(listeners
        .into_iter()
        .filter_map(|socket| if let Listener::Tcp(tcp) = socket { Some(tcp) } else { None })
        .collect())
}

/// The previous process's UDP sockets on `address`, non-blocking.
pub(super) fn udp(address: &str) -> io::Result<Vec<UdpSocket>> {
    let of_kind = |fd: &OwnedFd| socket_type(fd) == Ok(SocketType::DGRAM);
    let taken = handover::take(&name("udp", address)).into_iter().filter(of_kind).map(UdpSocket::from);
    taken.map(|socket| socket.set_nonblocking(true).map(|()| socket)).collect()
}

/// The previous process's listening socket at `path`, non-blocking. Its file stays as it is.
pub(super) fn unix(path: &Path) -> io::Result<Option<Listener>> {
    Ok(listeners(&name("unix", &path.display().to_string()))?.into_iter().next())
}

/// The socket that systemd passed under this name to the previous process, or to one before it.
pub(super) fn activated(name_of: &str) -> Option<Listener> {
    listeners(&name("systemd", name_of)).ok()?.into_iter().next()
}

/// Tells who asked for this process that a fresh start can listen on `address`, if it is taken by a socket that the
/// previous process hands over, and for which this one has no use: it listens on all addresses of the port in place of
/// one, or the other way round.
pub(super) fn explain_taken(address: SocketAddr, error: &Error) {
    let is_in_the_way = |name: &str| {
        let other: Option<SocketAddr> = name.strip_prefix("tcp ").and_then(|other| other.parse().ok());
        other.is_some_and(|other| includes(address, other) || includes(other, address))
    };
    if error.is_taken() && handover::is_left(is_in_the_way) {
        handover::needs_a_start_anew("it listens at another address of the same port");
    }
}

/// The same for a socket that systemd has not passed to this process.
pub(super) fn explain_not_passed(error: &Error) {
    if matches!(error, Error::NotPassed(_)) {
        handover::needs_a_start_anew("systemd passes a new socket only when it starts the unit");
    }
}

/// Offers the listening sockets on `address` to the next process.
pub(super) fn offer_tcp(address: &str, sockets: &[TcpListener]) {
    offer("tcp", address, sockets);
}

/// Offers the UDP sockets on `address`.
pub(super) fn offer_udp(address: &str, sockets: &[UdpSocket]) {
    offer("udp", address, sockets);
}

/// Offers the listening socket at `path`.
pub(super) fn offer_unix(path: &Path, socket: &Listener) {
    offer_listener(&name("unix", &path.display().to_string()), socket);
}

/// Offers the socket that systemd passed under a name.
pub(super) fn offer_activated(name_of: &str, socket: &Listener) {
    offer_listener(&name("systemd", name_of), socket);
}

fn offer(kind: &str, address: &str, sockets: &[impl AsFd]) {
    if !address.ends_with(":0") {
        sockets.iter().for_each(|socket| handover::offer(&name(kind, address), socket));
    }
}

fn offer_listener(name: &str, socket: &Listener) {
    match socket {
        Listener::Tcp(socket) => handover::offer(name, socket),
        Listener::Unix(socket) => handover::offer(name, socket),
    }
}

fn listeners(name: &str) -> io::Result<Vec<Listener>> {
    let taken = handover::take(name).into_iter().filter(|fd| socket_acceptconn(fd).unwrap_or(false));
    let listeners = taken.filter_map(activated::listener);
    listeners.map(|socket| socket.set_nonblocking().map(|()| socket)).collect()
}

fn name(kind: &str, address: &str) -> String {
    format!("{kind} {address}")
}
