//! The endpoint of one worker on one address.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use h3::error::Code;
use quinn::{Endpoint, Incoming, Runtime as _, TokioRuntime};
use service::proxies::Source;
use service::socket;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection;
use super::gather::Gathering;
use super::setup::{self, Shared};
use super::succession::{self, Inherited, Relay};
use super::transport::varint;
use crate::config::Config;
use crate::handover::Named;
use crate::limits::Permit;
use crate::listen::Error;
use crate::service_trait::HttpService;
use crate::tls::{self, Tls};
use crate::worker::Worker;

/// Handshakes in progress on one worker from which on a client first has to prove its address (RFC 9000,
/// section 8.1.2): a round trip more for it, and nothing to remember for us.
const UNPROVEN: usize = 64;
/// How long an endpoint whose connections are closed stays, should one of its last words be lost.
const FAREWELL: Duration = Duration::from_millis(200);

/// A worker's socket for QUIC on one address.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Non-blocking. More than one where the process before had more workers.
    sockets: Vec<UdpSocket>,
    /// Where datagrams come from once another process has the sockets.
    relay: Option<OwnedFd>,
    /// Its place among those configured.
    pub(crate) endpoint: usize,
    /// What it has in common with those of other workers.
    pub(crate) shared: Arc<Shared>,
}

impl Socket {
    /// Those of all workers: the inherited ones, and new ones where there are too few.
    ///
    /// # Errors
    /// When the address cannot be bound, or TLS lacks what QUIC needs.
    pub(crate) fn all(
        endpoint: usize,
        address: SocketAddr,
        config: &Config,
        tls: &Tls,
        workers: usize,
        inherited: Inherited,
    ) -> Result<Vec<Self>, Error> {
        let Inherited { mut sockets, predecessors } = inherited;
        let shared = Shared::new(config, tls, workers, predecessors).map_err(tls::Error::Versions)?;
        if sockets.is_empty() {
            sockets = socket::bind_udp_each(address, workers, setup::enlarge_buffers)?;
        }
        while sockets.len() < workers {
            sockets.push(socket::bind_udp(address, setup::enlarge_buffers)?);
        }
        let new = |_| Self { sockets: Vec::new(), relay: None, endpoint, shared: Arc::clone(&shared) };
        let mut all: Vec<_> = (0..workers).map(new).collect();
        for (index, socket) in sockets.into_iter().enumerate() {
            all[index % workers].sockets.push(socket);
        }
        Ok(all)
    }

    /// What a process that takes over is given, where `endpoint` is the name of the address.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn offer(&mut self, endpoint: &str) -> io::Result<Vec<Named>> {
        let (offered, ours) = succession::offer(self.shared.exchange.ids(), endpoint, &self.sockets)?;
        self.relay = Some(ours);
        Ok(offered)
    }
}

/// Serves until draining, then waits for the connections to end.
pub(crate) async fn serve(worker: Arc<Worker>, socket: Socket, service: impl HttpService) {
    let (endpoint, gathering) = match open(&worker, socket) {
        Ok(opened) => opened,
        Err(error) => return tracing::error!(%error, "cannot use a QUIC socket"),
    };
    let Ok(local) = endpoint.local_addr() else { return };
    let sending = tokio::spawn(gathering.send_rest());
    let mut drain = worker.drain.clone();
    let mut connections = JoinSet::new();
    // Clones count the handshakes in progress.
    let handshakes = Arc::new(());
    loop {
        let incoming = tokio::select! {
            biased;
            incoming = endpoint.accept() => incoming,
            _ = drain.draining() => break,
        };
        // Only an endpoint that is closed, or whose socket has failed, has none.
        let Some(incoming) = incoming else { break };
        while connections.try_join_next().is_some() {}
        let Some((incoming, permit)) = admit(&worker, incoming, Arc::strong_count(&handshakes)) else {
            continue;
        };
        let (worker, service, handshake) = (Arc::clone(&worker), service.clone(), Arc::clone(&handshakes));
        connections.spawn(async move {
            let quic = establish(&worker, incoming).await;
            drop(handshake);
            match quic {
                Some(quic) => connection::serve(&worker, local, quic, permit.guest(), service).await,
                None => worker.counts().handshake_failures.increment(),
            }
            drop(permit);
        });
    }
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        () = async { while let Some(incoming) = endpoint.accept().await { turn_away(incoming) } } => {}
        () = drain.cut() => {}
    }
    endpoint.close(varint(Code::H3_NO_ERROR.value()), b"");
    // Long enough to say so, and no longer.
    let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
    sending.abort();
}

/// Who connects while it drains learns at once that it is in vain; or nothing, where another process comes to these sockets:
/// then it tries again.
fn turn_away(incoming: Incoming) {
    if socket::keeps() { incoming.ignore() } else { incoming.refuse() }
}

fn open(
    worker: &Worker,
    Socket { sockets, relay, shared, .. }: Socket,
) -> io::Result<(Endpoint, Arc<Gathering>)> {
    let index = u8::try_from(worker.index).map_err(io::Error::other)?;
    let sockets = sockets.into_iter().map(|socket| TokioRuntime.wrap_udp_socket(socket));
    let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
    let relay = relay.map(Relay::new).transpose()?;
    let socket = Gathering::new(shared.exchange.steer(index, sockets, relay, worker.metrics.clone()));
    let (config, server) = (shared.endpoint(index), Some(shared.server.clone()));
    let runtime = Arc::new(TokioRuntime);
    Ok((Endpoint::new_with_abstract_socket(config, server, socket.clone(), runtime)?, socket))
}

/// Whether a connection attempt may go on.
fn admit(worker: &Worker, incoming: Incoming, handshakes: usize) -> Option<(Incoming, Permit)> {
    if handshakes > UNPROVEN && !incoming.remote_address_validated() {
        // It may retry, as its address is not validated.
        let _ = incoming.retry();
        return None;
    }
    let address = incoming.remote_address().ip();
    // As those by TCP: a proxy's are not its own.
    let counted = worker.config.proxies.source(Some(address)) == Source::Connection;
    match worker.connections.admit(Some(address).filter(|_| counted)) {
        Ok(permit) => Some((incoming, permit)),
        Err(why) => {
            worker.counts().refused(why);
            incoming.refuse();
            None
        }
    }
}

/// The connection, if the handshake succeeds in time.
async fn establish(worker: &Worker, incoming: Incoming) -> Option<quinn::Connection> {
    let connecting = incoming.accept().ok()?;
    timeout(worker.config.limits.handshake_time, connecting).await.ok()?.ok()
}
