//! Sockets that systemd keeps while the service restarts: `FileDescriptorStoreMax=` in systemd.service(5),
//! sd_pid_notify_with_fds(3).
//!
//! When the last descriptor of a listening socket is closed, the kernel resets the connections that wait in it and
//! refuses new ones. systemd therefore holds another descriptor of each socket and passes it to the next process;
//! connections in between wait for that process. Kept are sockets of [`Address::Tcp`](super::Address::Tcp) and UDP
//! sockets on the same addresses. Unix sockets are not kept; a socket unit can do that.

use std::env;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use sd_notify::NotifyState;

use super::{Error, activated};
use crate::handover::Outcome;
use crate::{handover, manager};

/// How long systemd may take to close a socket.
const LETTING_GO: Duration = Duration::from_secs(10);

/// How often to check whether systemd has closed it.
const AGAIN: Duration = Duration::from_millis(20);

/// The start of the names of kept sockets, which no socket unit uses.
const PREFIX: &str = "kept ";

/// Whether systemd keeps sockets for this service. systemd announces that since version 254.
pub fn keeps() -> bool {
    let max = env::var("FDSTORE").ok().and_then(|max| max.parse::<u32>().ok());
    max.is_some_and(|max| max > 0) && env::var_os("NOTIFY_SOCKET").is_some()
}

/// The previous process's listening TCP sockets on `address`, non-blocking, each once.
pub(super) fn tcp(address: &str) -> io::Result<Vec<TcpListener>> {
    take("tcp", address, SocketType::STREAM, |fd| {
        let listener = TcpListener::from(fd);
        listener.set_nonblocking(true).map(|()| listener)
    })
}

/// The previous process's UDP sockets on `address`, non-blocking, each once.
pub(super) fn udp(address: &str) -> io::Result<Vec<UdpSocket>> {
    take("udp", address, SocketType::DGRAM, |fd| {
        let socket = UdpSocket::from(fd);
        socket.set_nonblocking(true).map(|()| socket)
    })
}

/// Has systemd keep the listening sockets on `address`. It does not keep a socket twice. Ports that the kernel chose
/// are not kept.
pub(super) fn keep_tcp(address: &str, sockets: &[TcpListener]) {
    keep("tcp", address, sockets.iter().map(AsFd::as_fd));
}

/// Has systemd keep the UDP sockets on `address`.
pub(super) fn keep_udp(address: &str, sockets: &[UdpSocket]) {
    keep("udp", address, sockets.iter().map(AsFd::as_fd));
}

/// Calls `bind`. If it fails because a kept socket of another address on this port is in the way, closes that socket
/// and calls it again. This happens when the settings change from one address of a port to all of them, or back.
pub(super) fn in_place_of_others<T>(port: u16, bind: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let taken = match bind() {
        Err(error) if error.is_taken() => error,
        bound => return bound,
    };
    if forget(|name| name.ends_with(&format!("_{port}"))) == 0 {
        return Err(taken);
    }
    let began = Instant::now();
    loop {
        match bind() {
            // systemd has not processed the message yet.
            Err(error) if error.is_taken() && began.elapsed() < LETTING_GO => std::thread::sleep(AGAIN),
            bound => return bound,
        }
    }
}

/// Closes kept sockets that nobody took, since the service no longer listens on their addresses. Call this once the
/// service listens on all its addresses.
pub fn forget_the_rest() {
    forget(|_| true);
}

/// Has systemd keep the sockets of a process that took over, and drop those that it did not take.
pub fn keep_what_was_handed_over() {
    let Some(Outcome { taken, left }) = handover::outcome() else { return };
    if !keeps() {
        return;
    }
    for (name, fd) in &taken {
        if let Some((kind @ ("tcp" | "udp"), address)) = name.split_once(' ') {
            keep(kind, address, std::iter::once(fd.as_fd()));
        }
    }
    for left in left {
        if let Some((kind @ ("tcp" | "udp"), address)) = left.split_once(' ') {
            tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name(kind, address))], &[]);
        }
    }
}

/// Closes kept sockets with such names that nobody took, here and in systemd. Returns the number of names.
fn forget(which: impl Fn(&str) -> bool) -> usize {
    let names = activated::close_all(|name| name.starts_with(PREFIX) && which(name));
    for name in &names {
        tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)], &[]);
    }
    names.len()
}

fn take<T>(
    kind: &str,
    address: &str,
    wanted: SocketType,
    open: impl Fn(OwnedFd) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let passed = activated::take_all(&name(kind, address));
    passed.into_iter().filter(|fd| is(fd, wanted)).map(open).collect()
}

fn is(fd: &OwnedFd, wanted: SocketType) -> bool {
    let ours = matches!(socket_domain(fd), Ok(AddressFamily::INET | AddressFamily::INET6));
    let listens = wanted != SocketType::STREAM || socket_acceptconn(fd).unwrap_or(false);
    ours && listens && socket_type(fd) == Ok(wanted)
}

fn keep<'f>(kind: &str, address: &str, fds: impl Iterator<Item = BorrowedFd<'f>>) {
    // systemd does not accept a message of a process that is taking over. It keeps all sockets once it has taken over.
    if !keeps() || address.ends_with(":0") || !manager::hears() {
        return;
    }
    let name = name(kind, address);
    for fd in fds {
        // systemd would drop descriptors that poll as hung up. Listening sockets never do, so it need not poll them.
        let states = [NotifyState::FdStore, NotifyState::FdName(&name), NotifyState::Custom("FDPOLL=0")];
        tell(&states, &[fd]);
    }
}

fn tell(states: &[NotifyState<'_>], fds: &[BorrowedFd<'_>]) {
    if let Err(error) = manager::notify(states, fds) {
        tracing::warn!(%error, "the service manager does not keep sockets: a restart will lose connections");
    }
}

/// A name that systemd allows: without a colon, and at most 255 bytes, which every address fits.
fn name(kind: &str, address: &str) -> String {
    format!("{PREFIX}{kind} {}", address.replace(':', "_"))
}
