//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SocketFlags, accept_with, acceptfrom_with};
use service::proxies::Source;
use service::socket::Listener;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::connection::Accepted;
use crate::service_trait::HttpService;
use crate::sockets::{Place, Socket};
use crate::worker::Worker;

/// How long accepting pauses when the process is short of file descriptors, or out of memory.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until draining, and then what is in the backlog already.
pub async fn run(worker: Arc<Worker>, socket: Socket, service: impl HttpService) {
    let place = socket.place;
    let acceptor = match Acceptor::new(socket.listener) {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "cannot use a listening socket"),
    };
    let mut drain = worker.drain.clone();
    let high_water = worker.config.high_water;
    let mut full = false;
    loop {
        if full && high_water.is_reached(&acceptor) {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => continue,
                _ = drain.draining() => break,
            }
        }
        full = false;
        let accepted = tokio::select! {
            accepted = acceptor.accept() => accepted,
            _ = drain.draining() => break,
        };
        match accepted {
            Ok((stream, remote)) => {
                if high_water.is_passed_by(&stream) {
                    full = true;
                    worker.counts().accept_errors.increment();
                }
                admit(&worker, &place, stream, remote, &service);
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections just now");
                worker.counts().accept_errors.increment();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // The kernel is asked itself: the runtime may not have heard yet of those that wait. Not for ever: while there is
    // load, there is always one more.
    for _ in 0..worker.config.tcp.backlog {
        match acceptor.accept_now() {
            Ok((stream, remote)) => admit(&worker, &place, stream, remote, &service),
            Err(error) if is_about_one_connection(&error) => {}
            Err(_) => return,
        }
    }
}

/// Serves a connection as a task of its own, unless there are too many.
fn admit(
    worker: &Arc<Worker>,
    place: &Arc<Place>,
    stream: Stream,
    remote: Option<SocketAddr>,
    service: &impl HttpService,
) {
    let address = remote.map(|remote| remote.ip());
    let source = worker.config.proxies.source(address);
    // Those of a proxy are counted by the addresses it tells.
    let address = match source {
        Source::Connection => address,
        Source::ProxyHeader | Source::Fields => None,
        Source::Nobody => return worker.counts().proxy_refused.increment(),
    };
    let make_room = || worker.config.limits.make_room && worker.make_room();
    let mut permit = match worker.connections.admit_or(address, make_room) {
        Ok(permit) => permit,
        Err(why) => return worker.counts().refused(why),
    };
    let life = worker.lives.begin(worker.config.limits.handshake_time);
    let (worker, place, service) = (Arc::clone(worker), Arc::clone(place), service.clone());
    tokio::spawn(async move {
        let local = place.local.or_else(|| stream.local());
        let permit = &mut permit;
        let accepted =
            Accepted { worker: &worker, life: &life, place: &place, permit, source, remote, local };
        // Pinned here, so that it is not held twice.
        life.run(pin!(accepted.serve(stream, service))).await;
    });
}

/// A connection that was accepted.
pub enum Stream {
    /// By TCP.
    Tcp(TcpStream),
    /// By a Unix socket.
    Unix(UnixStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Stream {
    fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Acceptor {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(listener) => TcpListener::from_std(listener).map(Self::Tcp),
            Listener::Unix(listener) => UnixListener::from_std(listener).map(Self::Unix),
        }
    }

    /// One that waits already.
    ///
    /// # Errors
    /// `WouldBlock` where none does.
    fn accept_now(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match self {
            Self::Tcp(listener) => {
                let (stream, remote) = acceptfrom_with(listener, flags)?;
                let stream = TcpStream::from_std(stream.into())?;
                Ok((Stream::Tcp(stream), remote.and_then(|remote| SocketAddr::try_from(remote).ok())))
            }
            Self::Unix(listener) => {
                let stream = UnixStream::from_std(accept_with(listener, flags)?.into())?;
                Ok((Stream::Unix(stream), None))
            }
        }
    }

    async fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().await.map(|(stream, remote)| (Stream::Tcp(stream), Some(remote)))
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| (Stream::Unix(stream), None)),
        }
    }
}

/// Whether an accept failed for one connection's sake (accept(2): errors of the new socket are passed
/// on), so that the next may be accepted at once.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::Interrupted)
}
