//! Listening.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{Address, Error, activated};

/// How many connections may wait to be accepted. Standard libraries and runtimes ask for 128 or
/// 1024, so raising `net.core.somaxconn` alone does nothing; the kernel takes the lesser of the two.
const BACKLOG: i32 = 16384;

/// Owner and group may connect.
const UNIX_MODE: u32 = 0o660;

/// How a TCP socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// How many connections may wait to be accepted, capped by `net.core.somaxconn`.
    pub backlog: i32,
    /// `SO_REUSEPORT`: others of this user may listen on the same address, and the kernel spreads
    /// connections over them. For one socket a worker.
    pub reuse_port: bool,
    /// `TCP_NODELAY`: accepted connections inherit it on Linux, which saves a call for each.
    pub nodelay: bool,
}

impl Default for TcpOptions {
    /// A backlog of 16384, no shared port, `TCP_NODELAY`.
    fn default() -> Self {
        Self { backlog: BACKLOG, reuse_port: false, nodelay: true }
    }
}

/// A non-blocking socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On TCP.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Where it listens, with the port the kernel chose if it was asked to.
    pub fn address(&self) -> Option<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(Address::Tcp),
            Self::Unix(listener) => {
                listener.local_addr().ok()?.as_pathname().map(|path| Address::Unix(path.into()))
            }
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }
}

impl Address {
    /// Listens here; `options` are for TCP, and do not apply to what systemd passes.
    ///
    /// # Errors
    /// When that is impossible; the error says where and why.
    pub fn listen(&self, options: &TcpOptions) -> Result<Listener, Error> {
        match self {
            Self::Tcp(address) => bind_tcp(*address, options).map(Listener::Tcp),
            Self::Unix(path) => bind_unix(path).map(Listener::Unix),
            Self::Activated(name) => activated::take(name),
        }
    }
}

/// Listens on `address`, non-blocking, with `SO_REUSEADDR`.
///
/// `[::]` takes both families whatever `net.ipv6.bindv6only` says, and IPv4 alone where the kernel
/// has no IPv6.
///
/// # Errors
/// [`Error::Bind`].
pub fn bind_tcp(address: SocketAddr, options: &TcpOptions) -> Result<TcpListener, Error> {
    let every = address.is_ipv6() && address.ip().is_unspecified();
    tcp(address, options)
        .or_else(|error| match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL) if every => {
                tcp((Ipv4Addr::UNSPECIFIED, address.port()).into(), options)
            }
            _ => Err(error),
        })
        .map_err(|source| Error::Bind { address: address.to_string(), source })
}

fn tcp(address: SocketAddr, options: &TcpOptions) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(options.reuse_port)?;
    socket.set_tcp_nodelay(options.nodelay)?;
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    Ok(socket.into())
}

/// Listens on `path`, non-blocking, open to owner and group. A socket that a process left behind is
/// replaced, one that is answered is not.
///
/// # Errors
/// [`Error::Taken`], [`Error::NotSocket`] or [`Error::Bind`].
pub fn bind_unix(path: &Path) -> Result<UnixListener, Error> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => return Err(Error::NotSocket(path.into())),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(Error::Taken(path.into())),
        _ => {}
    }
    unix(path).map_err(|source| Error::Bind { address: format!("unix:{}", path.display()), source })
}

fn unix(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Before listening, so that nobody connects under a laxer mode.
    fs::set_permissions(path, fs::Permissions::from_mode(UNIX_MODE))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const ANY: &str = "127.0.0.1:0";

    fn tcp(address: &str, options: TcpOptions) -> Result<TcpListener, Error> {
        bind_tcp(address.parse().expect("address"), &options)
    }

    #[test]
    fn connections_inherit_nodelay_from_their_listener() {
        for nodelay in [true, false] {
            let listener = tcp(ANY, TcpOptions { nodelay, ..TcpOptions::default() }).expect("listens");
            let _client = TcpStream::connect(listener.local_addr().expect("address")).expect("connects");
            // Connected means waiting to be accepted, so this does not block though it may not.
            let (accepted, _) = listener.accept().expect("a connection");
            assert_eq!(accepted.nodelay().expect("option"), nodelay);
        }
    }

    #[test]
    fn a_port_is_shared_only_if_both_sides_want_to() {
        let cases = [(true, true, true), (true, false, false), (false, true, false), (false, false, false)];
        for (first, second, shared) in cases {
            let options = |reuse_port| TcpOptions { reuse_port, ..TcpOptions::default() };
            let listener = tcp(ANY, options(first)).expect("listens");
            let address = listener.local_addr().expect("address").to_string();
            match tcp(&address, options(second)) {
                Ok(_) => assert!(shared),
                Err(error) => {
                    assert!(!shared);
                    let text = format!("cannot listen on {address}: address already in use");
                    assert_eq!(error.to_string(), text);
                }
            }
        }
    }

    #[test]
    fn every_address_includes_those_of_ipv4() {
        let listener = tcp("[::]:0", TcpOptions::default()).expect("listens");
        let port = listener.local_addr().expect("address").port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_living_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let first = bind_unix(&path).expect("listens");
        assert_eq!(fs::metadata(&path).expect("a socket").mode() & 0o777, 0o660);
        assert!(matches!(bind_unix(&path), Err(Error::Taken(_))));
        drop(first);
        let second = bind_unix(&path).expect("replaces");
        UnixStream::connect(&path).expect("connects");
        drop(second);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        fs::write(&path, "precious").expect("a file");
        assert!(matches!(bind_unix(&path), Err(Error::NotSocket(_))));
        assert_eq!(fs::read(&path).expect("still there"), b"precious");
    }

    #[test]
    fn a_listener_knows_its_address() {
        let listener = "localhost:0".parse::<Address>().expect("address").listen(&TcpOptions::default());
        let Some(Address::Tcp(address)) = listener.expect("listens").address() else { panic!("TCP") };
        assert_ne!(address.port(), 0);
    }
}
