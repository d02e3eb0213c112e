//! Opens listening sockets.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::listen;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::{Address, Error, Listener, activated, handed, kept};

/// How many connections may wait to be accepted. Standard libraries and runtimes request 128 or 1024, so raising
/// `net.core.somaxconn` alone has no effect: the kernel takes the smaller one.
const BACKLOG: i32 = 16384;

/// Owner and group may connect.
const UNIX_MODE: u32 = 0o660;

/// Options of a listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// How many connections may wait to be accepted, capped by `net.core.somaxconn`.
    pub backlog: i32,
    /// `SO_REUSEPORT`: other sockets of this user may listen on the same address, and the kernel distributes
    /// connections. Used for one socket per worker.
    pub reuse_port: bool,
    /// `TCP_NODELAY`: on Linux accepted connections inherit it, which saves a system call for each.
    pub nodelay: bool,
}

impl Default for TcpOptions {
    /// A backlog of 16384, no shared port, `TCP_NODELAY`.
    fn default() -> Self {
        Self { backlog: BACKLOG, reuse_port: false, nodelay: true }
    }
}

impl Address {
    /// Listens on this address. `options` apply to TCP, but not to sockets from systemd. Uses a socket that another
    /// process [hands over](crate::handover).
    ///
    /// # Errors
    /// When that fails; the error says where and why.
    pub fn listen(&self, options: &TcpOptions) -> Result<Listener, Error> {
        match self {
            Self::Tcp(address) => bind_tcp(*address, options).map(Listener::Tcp),
            Self::Unix(path) => unix_or_handed(path),
            Self::Activated(name) => {
                let socket = match handed::activated(name) {
                    Some(socket) => socket,
                    None => activated::take(name).inspect_err(handed::explain_not_passed)?,
                };
                handed::offer_activated(name, &socket);
                Ok(socket)
            }
        }
    }

    /// Opens a listening socket for each of this many workers, at least one, all on the first one's port. On TCP the
    /// kernel distributes connections (`SO_REUSEPORT`). If another process already listens there, that is an error,
    /// even if it allows sharing. Other kinds of addresses can be bound only once, so there all workers share one
    /// socket.
    ///
    /// If systemd [keeps](super::keeps) sockets, or another process [hands them over](crate::handover), these include
    /// the previous process's sockets. There may be more of them than workers, if that process had more. If it had
    /// fewer and hands them over, workers share them.
    ///
    /// # Errors
    /// When that fails; the error says where and why.
    pub fn listen_each(&self, workers: usize, options: &TcpOptions) -> Result<Vec<Listener>, Error> {
        if let Self::Tcp(address) = self {
            let all = tcp_each(*address, workers, options)?;
            return Ok(all.into_iter().map(Listener::Tcp).collect());
        }
        let mut all = vec![self.listen(options)?];
        while all.len() < workers {
            let again = all[0].try_clone();
            all.push(again.map_err(|error| Error::Bind { address: self.to_string(), error })?);
        }
        Ok(all)
    }
}

fn tcp_each(address: SocketAddr, workers: usize, options: &TcpOptions) -> Result<Vec<TcpListener>, Error> {
    let name = address.to_string();
    let failed = |error| Error::Bind { address: name.clone(), error };
    let mut all = handed::tcp(&name).map_err(failed)?;
    let are_handed = !all.is_empty();
    all.extend(kept::tcp(&name).map_err(failed)?);
    for socket in &all {
        // The backlog may have changed with the settings.
        listen(socket, options.backlog).map_err(|error| failed(error.into()))?;
    }
    if all.is_empty() {
        let bound = kept::in_place_of_others(address.port(), || tcp(address, options, true));
        all.push(bound.inspect_err(|error| handed::explain_taken(address, error))?);
    }
    let shared = TcpOptions { reuse_port: true, ..*options };
    // Until the takeover, the kernel would also give connections to a further socket, where nobody accepts them, and
    // reset them if this process fails.
    while !are_handed && all.len() < workers {
        let bound = all[0].local_addr().map_err(failed)?;
        all.push(bind_tcp(bound, &shared)?);
    }
    kept::keep_tcp(&name, &all);
    handed::offer_tcp(&name, &all);
    for index in 0..workers.saturating_sub(all.len()) {
        let again = all[index].try_clone().map_err(failed)?;
        all.push(again);
    }
    Ok(all)
}

/// Opens a non-blocking listening socket on `address`, with `SO_REUSEADDR`.
///
/// `[::]` accepts both families whatever `net.ipv6.bindv6only` says, or only IPv4 if the kernel has no IPv6. An address
/// that this machine does not have is bound anyway (`IP_FREEBIND`), with a warning in the log. It serves once the
/// address is there, for instance when the network comes up after the service.
///
/// # Errors
/// [`Error::Bind`].
pub fn bind_tcp(address: SocketAddr, options: &TcpOptions) -> Result<TcpListener, Error> {
    tcp(address, options, false)
}

/// Opens a non-blocking UDP socket on `address` for each of this many workers. `prepare` is called for each before it
/// is bound, and again for those that exist, since what the kernel allows may have changed. As in
/// [`Address::listen_each`], another process that already receives there is an error, and kept or handed-over sockets
/// are included. Workers share no socket, so there are fewer than workers if a process that had fewer hands them over.
/// As in [`bind_tcp`], the address need not exist yet.
///
/// # Errors
/// [`Error::Bind`].
pub fn bind_udp_each(
    address: SocketAddr,
    workers: usize,
    prepare: impl Fn(&Socket),
) -> Result<Vec<UdpSocket>, Error> {
    let name = address.to_string();
    let failed = |error| Error::Bind { address: format!("{address} (UDP)"), error };
    let mut all = handed::udp(&name).map_err(failed)?;
    let are_handed = !all.is_empty();
    all.extend(kept::udp(&name).map_err(failed)?);
    all.iter().for_each(|socket| prepare(&SockRef::from(socket)));
    if all.is_empty() {
        all.push(kept::in_place_of_others(address.port(), || udp(address, true, &prepare))?);
    }
    // As with TCP: until the takeover, nobody would read a further socket.
    while !are_handed && all.len() < workers {
        let bound = all[0].local_addr().unwrap_or(address);
        all.push(udp(bound, false, &prepare)?);
    }
    kept::keep_udp(&name, &all);
    handed::offer_udp(&name, &all);
    Ok(all)
}

fn udp(address: SocketAddr, first: bool, prepare: &impl Fn(&Socket)) -> Result<UdpSocket, Error> {
    let prepare = |socket: &Socket| {
        prepare(socket);
        Ok(())
    };
    bind(address, Type::DGRAM, Protocol::UDP, true, first, prepare)
        .map(Into::into)
        .map_err(|error| Error::Bind { address: format!("{address} (UDP)"), error })
}

fn tcp(address: SocketAddr, options: &TcpOptions, first: bool) -> Result<TcpListener, Error> {
    let bind = |address| {
        let shared = options.reuse_port || first;
        let socket = bind(address, Type::STREAM, Protocol::TCP, shared, first, |socket| {
            socket.set_reuse_address(true)?;
            socket.set_tcp_nodelay(options.nodelay)
        })?;
        socket.listen(options.backlog)?;
        Ok(socket.into())
    };
    let every = address.is_ipv6() && address.ip().is_unspecified();
    bind(address)
        .or_else(|error: io::Error| match errno(&error) {
            Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if every => {
                bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
            }
            _ => Err(error),
        })
        .map_err(|error| Error::Bind { address: address.to_string(), error })
}

/// A socket bound to `address`. If it is `shared`, other sockets of this user may be bound there too. If it is also the
/// `first`, none may be bound there yet.
fn bind(
    address: SocketAddr,
    kind: Type,
    protocol: Protocol,
    shared: bool,
    first: bool,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_port(shared && !first)?;
    prepare(&socket)?;
    match socket.bind(&address.into()) {
        Err(error) if errno(&error) == Some(Errno::ADDRNOTAVAIL) && !address.ip().is_unspecified() => {
            match address {
                SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
                SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
            }
            socket.bind(&address.into())?;
            tracing::warn!(%address, "this machine does not have this address yet; it is served once it has");
        }
        bound => bound?,
    }
    // The kernel compares existing sockets with the new one. This socket sets the option only after it was bound alone,
    // so others can join it from here on.
    socket.set_reuse_port(shared)?;
    Ok(socket)
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// Listens on `path`, unless the previous process hands over its socket there.
fn unix_or_handed(path: &Path) -> Result<Listener, Error> {
    let failed = |error| Error::Bind { address: format!("unix:{}", path.display()), error };
    let socket = match handed::unix(path).map_err(failed)? {
        Some(socket) => socket,
        None => bind_unix(path).map(Listener::Unix)?,
    };
    handed::offer_unix(path, &socket);
    Ok(socket)
}

/// Listens on `path`, non-blocking, open to owner and group. Replaces a socket that a dead process left behind, but not
/// one that answers.
///
/// # Errors
/// [`Error::Taken`], [`Error::NotSocket`] or [`Error::Bind`].
pub fn bind_unix(path: &Path) -> Result<UnixListener, Error> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => return Err(Error::NotSocket(path.into())),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(Error::Taken(path.into())),
        _ => {}
    }
    unix(path).map_err(|error| Error::Bind { address: format!("unix:{}", path.display()), error })
}

fn unix(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Set before listening, so that nobody connects under a laxer mode.
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
            // A finished connect means that the connection waits to be accepted, so this does not block.
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
                    let text = format!("cannot listen on {address}: address already in use; stop ");
                    let said = crate::exit::chain(&error);
                    assert!(said.starts_with(&text), "{said}");
                    assert_eq!(said.to_lowercase().matches("already in use").count(), 1, "{said}");
                }
            }
        }
    }

    /// Retries until it works, since a program that another test starts briefly inherits all sockets of this process.
    fn soon<T, E: std::fmt::Debug>(mut what: impl FnMut() -> Result<T, E>) -> T {
        let begun = std::time::Instant::now();
        loop {
            match what() {
                Ok(done) => return done,
                Err(error) => assert!(begun.elapsed().as_secs() < 30, "{error:?}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn the_sockets_of_workers_share_a_port_that_nobody_else_has() {
        let options = TcpOptions::default();
        for any in [ANY, "[::1]:0", "[::]:0"] {
            let any: Address = any.parse().expect("an address");
            let first = any.listen_each(3, &options).expect("listens");
            let addresses: Vec<_> = first.iter().map(Listener::address).collect();
            assert!(addresses.len() == 3 && addresses.iter().all(|address| *address == addresses[0]));
            let address = addresses[0].clone().expect("an address");
            for workers in [1, 3] {
                let error = address.listen_each(workers, &options).expect_err("it is taken");
                assert!(error.to_string().contains("already in use"), "{error}");
            }
            drop(first);
            soon(|| address.listen_each(2, &options));
        }
    }

    #[test]
    fn the_sockets_of_datagrams_share_a_port_that_nobody_else_has() {
        let first = bind_udp_each(ANY.parse().expect("an address"), 3, |_| {}).expect("receives");
        let address = first[0].local_addr().expect("an address");
        assert!(first.iter().all(|socket| socket.local_addr().is_ok_and(|other| other == address)));
        let error = bind_udp_each(address, 2, |_| {}).expect_err("it is taken");
        assert!(error.to_string().contains("already in use"), "{error}");
        // Each gets its share of what arrives.
        let mut received = [0; 3];
        while received.contains(&0) {
            UdpSocket::bind(ANY).expect("a socket").send_to(b"x", address).expect("sends");
            for (socket, received) in first.iter().zip(&mut received) {
                *received += usize::from(socket.recv(&mut [0]).is_ok());
            }
        }
    }

    #[test]
    fn connections_are_spread_over_the_sockets_of_workers() {
        let any: Address = ANY.parse().expect("an address");
        let listeners = any.listen_each(3, &TcpOptions::default()).expect("listens");
        let Some(Address::Tcp(address)) = listeners[0].address() else { panic!("TCP") };
        let mut accepted = [0; 3];
        while accepted.contains(&0) {
            let _client = TcpStream::connect(address).expect("connects");
            for (listener, accepted) in listeners.iter().zip(&mut accepted) {
                let Listener::Tcp(listener) = listener else { panic!("TCP") };
                *accepted += usize::from(listener.accept().is_ok());
            }
        }
    }

    /// The address is from a network for documentation (RFC 5737, RFC 3849), so no machine has it.
    #[test]
    fn an_address_that_is_not_there_yet_is_listened_on() {
        for address in ["192.0.2.1:0", "[2001:db8::1]:0"] {
            let listener = tcp(address, TcpOptions::default()).expect("listens");
            assert_ne!(listener.local_addr().expect("an address").port(), 0);
            bind_udp_each(address.parse().expect("an address"), 2, |_| {}).expect("receives");
        }
    }

    #[test]
    fn a_port_that_needs_privileges_says_so() {
        let error = io::Error::from_raw_os_error(Errno::ACCESS.raw_os_error());
        let error = Error::Bind { address: "[::]:80".into(), error };
        let text = error.to_string();
        assert!(text.starts_with("cannot listen on [::]:80: permission denied; "), "{text}");
        assert!(text.contains("CAP_NET_BIND_SERVICE"), "{text}");
    }

    #[test]
    fn who_takes_an_address_can_be_found_out() {
        let first = tcp(ANY, TcpOptions::default()).expect("listens");
        let address = first.local_addr().expect("address").to_string();
        let text = tcp(&address, TcpOptions::default()).expect_err("it is taken").to_string();
        let expected = format!("cannot listen on {address}: address already in use; ");
        assert!(text.starts_with(&expected) && text.contains("ss -ltunp"), "{text}");
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
        let second = soon(|| bind_unix(&path));
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
