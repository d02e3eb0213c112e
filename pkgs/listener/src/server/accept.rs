//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SocketFlags, accept_with, acceptfrom_with};
use service::handover;
use service::proxies::Source;
use service::socket::{Listener, is_about_one_connection};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::connection::Accepted;
use super::sockets::{BoundEndpoint, ListenSocket};
use crate::config::EndpointProtocol;
use crate::http_service::HttpService;
use crate::net::{AcceptedStream, LazyTcpStream};
use crate::worker_context::WorkerContext;

/// How long accepting pauses if the process lacks file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until draining. Then accepts what is already in the backlog, unless another process does.
pub async fn run(worker: Arc<WorkerContext>, socket: ListenSocket, service: impl HttpService) {
    let endpoint = socket.endpoint;
    let acceptor = match Acceptor::new(socket.listener) {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "cannot use a listening socket"),
    };
    let mut drain = worker.drain.clone();
    // Created once, since registering for it takes longer than checking it.
    let mut draining = pin!(drain.draining());
    let high_water = worker.config.high_water;
    let mut full = false;
    loop {
        if full && high_water.is_reached(&acceptor.listener) {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => continue,
                _ = &mut draining => break,
            }
        }
        full = false;
        let accepted = tokio::select! {
            accepted = acceptor.accept() => accepted,
            _ = &mut draining => break,
        };
        match accepted {
            Ok((socket, remote)) => {
                if high_water.is_passed_by(&socket) {
                    full = true;
                    worker.counts().accept_errors.increment();
                }
                admit(&worker, &endpoint, acceptor.stream(socket), remote, &service);
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections just now");
                worker.counts().accept_errors.increment();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // Connections in the backlog belong to the other process.
    if handover::is_handed_over() {
        return;
    }
    // Asks the kernel, since the runtime may not know of waiting connections yet. Bounded, since under load there is
    // always one more.
    for _ in 0..worker.config.tcp.backlog {
        match acceptor.accept_now() {
            Ok((socket, remote)) => admit(&worker, &endpoint, acceptor.stream(socket), remote, &service),
            Err(error) if is_about_one_connection(&error) => {}
            Err(_) => return,
        }
    }
}

/// Serves a connection as a separate task, unless there are too many.
fn admit(
    worker: &Arc<WorkerContext>,
    endpoint: &Arc<BoundEndpoint>,
    stream: AcceptedStream,
    remote: Option<SocketAddr>,
    service: &impl HttpService,
) {
    let address = remote.map(|remote| remote.ip());
    let source = worker.config.proxies.source(address);
    // A proxy's connections count for the client addresses that the proxy reports, not for its own.
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
    let deadline = worker.registry.begin(worker.config.limits.handshake_time);
    let (worker, endpoint, service) = (Arc::clone(worker), Arc::clone(endpoint), service.clone());
    // Boxed, since the runtime moves a future eight times.
    match stream {
        // The protocol is known, so no memory is spent on finding it out: many such connections are idle.
        AcceptedStream::Tcp(stream)
            if endpoint.protocol == EndpointProtocol::Http1 && source != Source::ProxyHeader =>
        {
            tokio::spawn(Box::pin(async move {
                let local = endpoint.local.or_else(|| stream.local_addr().ok());
                let permit = &mut permit;
                let accepted = Accepted {
                    worker: &worker,
                    deadline: &deadline,
                    endpoint: &endpoint,
                    permit,
                    source,
                    remote,
                    local,
                    uid: None,
                };
                deadline.run(pin!(accepted.http1(stream, &[], None, service))).await;
            }))
        }
        stream => tokio::spawn(Box::pin(async move {
            let local = endpoint.local.or_else(|| stream.local());
            let permit = &mut permit;
            let accepted = Accepted {
                worker: &worker,
                deadline: &deadline,
                endpoint: &endpoint,
                permit,
                source,
                remote,
                local,
                uid: None,
            };
            // Pinned here, so that it is not stored twice.
            deadline.run(pin!(accepted.serve(stream, service))).await;
        })),
    };
}

/// Accepts non-blocking sockets without registering them with the runtime.
struct Acceptor {
    listener: AsyncFd<OwnedFd>,
    /// Whether clients come over TCP.
    tcp: bool,
}

impl Acceptor {
    #[allow(unsafe_code)]
    fn new(listener: Listener) -> io::Result<Self> {
        let (listener, tcp): (OwnedFd, _) = match listener {
            Listener::Tcp(listener) => (listener.into(), true),
            Listener::Unix(listener) => (listener.into(), false),
        };
        // SAFETY: the descriptor is owned, so it stays open and unchanged as long as the value that it is given to.
        let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) }?;
        Ok(Self { listener, tcp })
    }

    /// Accepts a connection that already waits.
    ///
    /// # Errors
    /// `WouldBlock` if none waits.
    fn accept_now(&self) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        if !self.tcp {
            return Ok((accept_with(&self.listener, flags)?, None));
        }
        let (socket, remote) = acceptfrom_with(&self.listener, flags)?;
        Ok((socket, remote.and_then(|remote| SocketAddr::try_from(remote).ok())))
    }

    async fn accept(&self) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        self.listener.async_io(Interest::READABLE, |_| self.accept_now()).await
    }

    /// The stream of such a socket.
    fn stream(&self, socket: OwnedFd) -> AcceptedStream {
        if self.tcp { AcceptedStream::Tcp(LazyTcpStream::new(socket)) } else { AcceptedStream::Unix(socket) }
    }
}
