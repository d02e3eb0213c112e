//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use service::socket::Listener;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::connection::Accepted;
use crate::service_trait::HttpService;
use crate::sockets::Socket;
use crate::worker::Worker;

/// How long accepting pauses when the process is out of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until draining, and then what is in the backlog already.
pub async fn run(worker: Arc<Worker>, socket: Socket, service: impl HttpService) {
    let place = socket.place;
    let acceptor = match Acceptor::new(socket.listener) {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "cannot use a listening socket"),
    };
    let mut drain = worker.drain.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = acceptor.accept() => accepted,
            _ = drain.draining() => return,
        };
        match accepted {
            Ok((stream, remote)) => {
                let permit = match worker.connections.admit(remote.map(|remote| remote.ip())) {
                    Ok(permit) => permit,
                    Err(why) => {
                        worker.counts().refused(why);
                        continue;
                    }
                };
                let life = worker.lives.begin(worker.config.limits.handshake_time);
                let (worker, place, service) = (Arc::clone(&worker), Arc::clone(&place), service.clone());
                tokio::spawn(async move {
                    let local = place.local.or_else(|| stream.local());
                    let accepted = Accepted { worker: &worker, life: &life, place: &place, remote, local };
                    life.run(accepted.serve(stream, service)).await;
                    drop(permit);
                });
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections just now");
                worker.counts().accept_errors.increment();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// A connection that was accepted.
pub enum Stream {
    /// By TCP.
    Tcp(TcpStream),
    /// By a Unix socket.
    Unix(UnixStream),
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

impl Acceptor {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(listener) => TcpListener::from_std(listener).map(Self::Tcp),
            Listener::Unix(listener) => UnixListener::from_std(listener).map(Self::Unix),
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
