//! The endpoint of one worker on one address.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use h3::error::Code;
use quinn::{Endpoint, Incoming, Runtime as _, TokioRuntime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection;
use super::setup::Shared;
use super::transport::varint;
use crate::limits::Permit;
use crate::service_trait::HttpService;
use crate::worker::Worker;

/// Handshakes in progress on one worker from which on a client first has to prove its address (RFC 9000,
/// section 8.1.2): a round trip more for it, and nothing to remember for us.
const UNPROVEN: usize = 64;
/// How long an endpoint whose connections are closed stays, should one of its last words be lost.
const FAREWELL: Duration = Duration::from_millis(200);

/// A worker's socket for QUIC.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Non-blocking.
    pub(crate) socket: UdpSocket,
    /// What it has in common with those of other workers.
    pub(crate) shared: Arc<Shared>,
}

/// Serves until draining, then waits for the connections to end.
pub(crate) async fn serve(worker: Arc<Worker>, socket: Socket, service: impl HttpService) {
    let endpoint = match open(&worker, socket) {
        Ok(endpoint) => endpoint,
        Err(error) => return tracing::error!(%error, "cannot use a QUIC socket"),
    };
    let Ok(local) = endpoint.local_addr() else { return };
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
                Some(quic) => connection::serve(&worker, local, quic, service).await,
                None => worker.counts().handshake_failures.increment(),
            }
            drop(permit);
        });
    }
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        // Who connects now learns at once that it is in vain.
        () = async { while let Some(incoming) = endpoint.accept().await { incoming.refuse() } } => {}
        () = drain.cut() => {}
    }
    endpoint.close(varint(Code::H3_NO_ERROR.value()), b"");
    // Long enough to say so, and no longer.
    let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
}

fn open(worker: &Worker, Socket { socket, shared }: Socket) -> std::io::Result<Endpoint> {
    let index = u8::try_from(worker.index).map_err(std::io::Error::other)?;
    let socket = TokioRuntime.wrap_udp_socket(socket)?;
    let socket = shared.exchange.steer(index, socket, worker.metrics.clone());
    let server = Some(shared.server.clone());
    Endpoint::new_with_abstract_socket(shared.endpoint(index), server, socket, Arc::new(TokioRuntime))
}

/// Whether a connection attempt may go on.
fn admit(worker: &Worker, incoming: Incoming, handshakes: usize) -> Option<(Incoming, Permit)> {
    if handshakes > UNPROVEN && !incoming.remote_address_validated() {
        // It may retry, as its address is not validated.
        let _ = incoming.retry();
        return None;
    }
    match worker.connections.admit(Some(incoming.remote_address().ip())) {
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
