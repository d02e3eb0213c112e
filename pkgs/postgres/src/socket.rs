//! A stream to a server, with timeouts after which a dead server is noticed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};

/// Keepalive: how long a connection is idle before it is probed, the interval, and how many probes may go unanswered.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(3))
    .with_retries(3);

/// How long sent bytes may go unacknowledged (TCP_USER_TIMEOUT), so that a broken network is noticed under load too.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// What a session is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Tcp(SocketAddr),
    Unix(std::path::PathBuf),
}

impl Target {
    /// The address, if it has one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip()),
            Self::Unix(_) => None,
        }
    }
}

/// Connects with TCP.
pub async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(stream)
}

/// Connects to a Unix socket. A path that starts with @ is one of Linux's abstract names.
pub async fn unix(path: &Path) -> io::Result<UnixStream> {
    match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)
        }
        None => UnixStream::connect(path).await,
    }
}
