//! Sockets that systemd keeps while the service restarts: `FileDescriptorStoreMax=` in systemd.service(5),
//! sd_pid_notify_with_fds(3).
//!
//! The kernel resets who waits in a listening socket when the last descriptor of it is closed, and refuses who comes after.
//! systemd holds another one of each, and passes it to the process that comes next: who connects in between waits for that.
//! Sockets of [`Address::Tcp`](super::Address::Tcp) are kept, and those of UDP on the same addresses. Unix sockets are not:
//! a socket unit keeps those.

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

/// How long systemd may take to let go of a socket.
const LETTING_GO: Duration = Duration::from_secs(10);

/// How often it is looked whether it has.
const AGAIN: Duration = Duration::from_millis(20);

/// Of this form are the names of what is kept; socket units have others.
const PREFIX: &str = "kept ";

/// Whether systemd keeps sockets for this service; it says so since its version 254.
pub fn keeps() -> bool {
    let max = env::var("FDSTORE").ok().and_then(|max| max.parse::<u32>().ok());
    max.is_some_and(|max| max > 0) && env::var_os("NOTIFY_SOCKET").is_some()
}

/// The sockets on `address` that the process before this one listened on, non-blocking, each once.
pub(super) fn tcp(address: &str) -> io::Result<Vec<TcpListener>> {
    take("tcp", address, SocketType::STREAM, |fd| {
        let listener = TcpListener::from(fd);
        listener.set_nonblocking(true).map(|()| listener)
    })
}

/// The sockets on `address` that the process before this one received on, non-blocking, each once.
pub(super) fn udp(address: &str) -> io::Result<Vec<UdpSocket>> {
    take("udp", address, SocketType::DGRAM, |fd| {
        let socket = UdpSocket::from(fd);
        socket.set_nonblocking(true).map(|()| socket)
    })
}

/// Has systemd keep what listens on `address`. What it has already it does not keep twice. A port that the kernel chose is
/// nobody's to come back to.
pub(super) fn keep_tcp(address: &str, sockets: &[TcpListener]) {
    keep("tcp", address, sockets.iter().map(AsFd::as_fd));
}

/// Has systemd keep what receives on `address`.
pub(super) fn keep_udp(address: &str, sockets: &[UdpSocket]) {
    keep("udp", address, sockets.iter().map(AsFd::as_fd));
}

/// Binds by `bind`, and where that fails since what was kept of another address on this port is in the way, again without it:
/// the settings have changed from one address of a port to all of them, or back.
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
            // systemd has yet to hear of it.
            Err(error) if error.is_taken() && began.elapsed() < LETTING_GO => std::thread::sleep(AGAIN),
            bound => return bound,
        }
    }
}

/// Closes what was kept and nobody took: on these addresses the service listens no more. To be called once it listens on
/// all it has.
pub fn forget_the_rest() {
    forget(|_| true);
}

/// Has systemd keep the sockets of a process that took over, and none that it has left to nobody.
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

/// Closes what nobody took of what was kept by such names, here and at systemd's; tells how many names those were.
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
    // One that takes over is not heard yet, and keeps all of it once it is.
    if !keeps() || address.ends_with(":0") || !manager::hears() {
        return;
    }
    let name = name(kind, address);
    for fd in fds {
        // systemd would drop what polls as hung up; nothing that listens does, and it need not look.
        let states = [NotifyState::FdStore, NotifyState::FdName(&name), NotifyState::Custom("FDPOLL=0")];
        tell(&states, &[fd]);
    }
}

fn tell(states: &[NotifyState<'_>], fds: &[BorrowedFd<'_>]) {
    if let Err(error) = manager::notify(states, fds) {
        tracing::warn!(%error, "the service manager does not keep sockets: a restart will lose connections");
    }
}

/// As systemd allows names: no colon, 255 bytes, which no address has.
fn name(kind: &str, address: &str) -> String {
    format!("{PREFIX}{kind} {}", address.replace(':', "_"))
}
