//! Sockets that systemd passes: sd_listen_fds(3).

use std::collections::BTreeSet;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

use super::{Error, Listener};

/// Takes the socket that was passed as `name`. Each can be taken once.
pub(super) fn take(name: &str) -> Result<Listener, Error> {
    let mut passed = passed().lock().unwrap_or_else(PoisonError::into_inner);
    let index = passed.iter().position(|(passed, _)| passed == name);
    let (_, fd) =
        index.map(|index| passed.swap_remove(index)).ok_or_else(|| Error::NotPassed(name.into()))?;
    listener(fd).ok_or_else(|| Error::NotListening(name.into()))
}

/// Takes all sockets that were passed as `name`.
pub(super) fn take_all(name: &str) -> Vec<OwnedFd> {
    let mut passed = passed().lock().unwrap_or_else(PoisonError::into_inner);
    passed.extract_if(.., |(passed, _)| passed == name).map(|(_, fd)| fd).collect()
}

/// Closes the sockets with names of this kind that nobody has taken. Returns their names, each once.
pub(super) fn close_all(kind: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut passed = passed().lock().unwrap_or_else(PoisonError::into_inner);
    passed.extract_if(.., |(name, _)| kind(name)).map(|(name, _)| name).collect()
}

/// `fd` as a listener, if it is a listening stream socket.
pub(super) fn listener(fd: OwnedFd) -> Option<Listener> {
    let listens = socket_acceptconn(&fd).ok()? && socket_type(&fd).ok()? == SocketType::STREAM;
    let listener = match socket_domain(&fd).ok()? {
        _ if !listens => return None,
        AddressFamily::UNIX => Listener::Unix(fd.into()),
        AddressFamily::INET | AddressFamily::INET6 => Listener::Tcp(fd.into()),
        _ => return None,
    };
    listener.set_nonblocking().ok()?;
    Some(listener)
}

/// The sockets that were passed to this process and not yet taken, by name.
fn passed() -> &'static Mutex<Vec<(String, OwnedFd)>> {
    static PASSED: OnceLock<Mutex<Vec<(String, OwnedFd)>>> = OnceLock::new();
    PASSED.get_or_init(|| {
        // Malformed input counts as nothing passed. Code that needs a name reports that it is missing.
        let fds = sd_notify::listen_fds_with_names().into_iter().flatten();
        Mutex::new(fds.map(|(fd, name)| (name, own(fd))).collect())
    })
}

#[allow(unsafe_code)]
fn own(fd: i32) -> OwnedFd {
    // SAFETY: systemd passed this descriptor to this very process (LISTEN_PID was checked and the
    // descriptor made close-on-exec just before), and the `OnceLock` above runs this once for each.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_listening_stream_sockets_are_taken() {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("listener");
        assert!(matches!(listener(tcp.into()), Some(Listener::Tcp(_))));
        let udp = UdpSocket::bind("127.0.0.1:0").expect("socket");
        assert!(listener(udp.into()).is_none());
        let (stream, _other) = UnixStream::pair().expect("pair");
        assert!(listener(stream.into()).is_none());
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(listener(file.into()).is_none());
    }

    #[test]
    fn a_name_that_was_not_passed_is_an_error() {
        let error = take("http").expect_err("nothing is passed to tests");
        assert!(error.to_string().contains("\"http\""), "{error}");
    }
}
