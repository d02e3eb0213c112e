//! Sockets that the process before this one hands over, and that this one does to the next: [`handover`].
//!
//! Each is known by what it is and the address it was asked for. A port that the kernel chose is nobody's to come back to.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

use super::{Listener, activated};
use crate::handover;

/// The sockets on `address` that the process before this one listened on, non-blocking.
pub(super) fn tcp(address: &str) -> io::Result<Vec<TcpListener>> {
    let listeners = listeners(&name("tcp", address))?;
    Ok(listeners
        .into_iter()
        .filter_map(|socket| if let Listener::Tcp(tcp) = socket { Some(tcp) } else { None })
        .collect())
}

/// The sockets on `address` that the process before this one received on, non-blocking.
pub(super) fn udp(address: &str) -> io::Result<Vec<UdpSocket>> {
    let of_kind = |fd: &OwnedFd| socket_type(fd) == Ok(SocketType::DGRAM);
    let taken = handover::take(&name("udp", address)).into_iter().filter(of_kind).map(UdpSocket::from);
    taken.map(|socket| socket.set_nonblocking(true).map(|()| socket)).collect()
}

/// The socket at `path` that the process before this one listened on, non-blocking. The file stays as it is.
pub(super) fn unix(path: &Path) -> io::Result<Option<Listener>> {
    Ok(listeners(&name("unix", &path.display().to_string()))?.into_iter().next())
}

/// The socket that systemd had passed to the process before this one by a name, or to one before that.
pub(super) fn activated(name_of: &str) -> Option<Listener> {
    listeners(&name("systemd", name_of)).ok()?.into_iter().next()
}

/// Offers what listens on `address` to the process that comes next.
pub(super) fn offer_tcp(address: &str, sockets: &[TcpListener]) {
    offer("tcp", address, sockets);
}

/// Offers what receives on `address`.
pub(super) fn offer_udp(address: &str, sockets: &[UdpSocket]) {
    offer("udp", address, sockets);
}

/// Offers what listens at `path`.
pub(super) fn offer_unix(path: &Path, socket: &Listener) {
    offer_listener(&name("unix", &path.display().to_string()), socket);
}

/// Offers what systemd has passed by a name.
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
