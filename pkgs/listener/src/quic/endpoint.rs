//! The endpoint of one worker on one address.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use h3::error::Code;
use quinn::{Runtime as _, TokioRuntime};
use service::proxies::Source;
use service::{handover, socket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::cid;
use super::hot_restart::{self, Relay};
use super::shared::{self, SharedEndpoint};
use crate::config::Config;
use crate::error::Error;
use crate::http_service::HttpService;
use crate::http3::{self, varint};
use crate::limits::{Permit, Refused};
use crate::quic_driver::{Connection, Driver, Endpoint, Incoming};
use crate::tls::{self, Tls};
use crate::worker_context::WorkerContext;

/// From this many running handshakes per worker on, a client first has to prove its address (RFC 9000, section 8.1.2).
/// This costs it a round trip, and this side no memory.
const UNPROVEN: usize = 64;
/// How long an endpoint stays after its connections are closed, in case one of its last packets is lost.
const FAREWELL: Duration = Duration::from_millis(200);

/// A worker's QUIC socket on one address.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Non-blocking. There are several if the previous process had more workers.
    sockets: Vec<UdpSocket>,
    /// The source of datagrams once another process has the sockets.
    relay: Option<OwnedFd>,
    /// The state shared with other workers' sockets.
    shared: Arc<SharedEndpoint>,
}

impl Socket {
    /// The sockets of the first of this many workers: of those whose connections an id can name, and of no more than
    /// another process hands over sockets, if one does.
    ///
    /// # Errors
    /// When the address cannot be bound, or TLS lacks what QUIC needs.
    pub(crate) fn all(
        address: SocketAddr,
        config: &Config,
        tls: &Tls,
        workers: usize,
    ) -> Result<Vec<Self>, Error> {
        let sockets = socket::bind_udp_each(address, workers.min(cid::WORKERS), shared::enlarge_buffers)?;
        let workers = workers.min(cid::WORKERS).min(sockets.len());
        let shared = SharedEndpoint::new(config, tls, workers, address).map_err(tls::Error::Versions)?;
        let new = || Self { sockets: Vec::new(), relay: None, shared: Arc::clone(&shared) };
        let mut all: Vec<_> = (0..workers).map(|_| new()).collect();
        for (index, socket) in sockets.into_iter().enumerate() {
            all[index % workers].sockets.push(socket);
        }
        if handover::enabled() {
            let mut relays = Vec::new();
            for socket in &mut all {
                let (theirs, ours) = hot_restart::relay().map_err(Error::Socket)?;
                relays.push(theirs);
                socket.relay = Some(ours);
            }
            shared.offer(address, &relays);
        }
        Ok(all)
    }
}

/// Serves until draining, then waits for the connections to end.
pub(crate) async fn serve(worker: Arc<WorkerContext>, socket: Socket, service: impl HttpService) {
    let (endpoint, driver) = match open(&worker, socket) {
        Ok(opened) => opened,
        Err(error) => return tracing::error!(%error, "cannot use a QUIC socket"),
    };
    let Ok(local) = endpoint.local_addr() else { return };
    let driving = tokio::spawn(driver.run());
    let mut connections = JoinSet::new();
    // Its clones count the running handshakes.
    let handshakes = Arc::new(());
    let mut drain = worker.drain.clone();
    // Has its own clone, since a service need not be `Sync`.
    let begin = move |connections: &mut JoinSet<()>, incoming| {
        let Some((incoming, mut permit, address)) = admit(&worker, incoming, Arc::strong_count(&handshakes))
        else {
            return;
        };
        let (worker, service, handshake) = (Arc::clone(&worker), service.clone(), Arc::clone(&handshakes));
        connections.spawn(async move {
            let quic = establish(&worker, incoming).await;
            drop(handshake);
            let Some(quic) = quic else { return worker.counts().handshake_failures.increment() };
            // The handshake has proven the address, if nothing did before.
            if let Some(Err(why)) = address.map(|address| permit.charge(address)) {
                worker.counts().refused(why);
                return quic
                    .close(varint(Code::H3_EXCESSIVE_LOAD.value()), b"too many connections of this address");
            }
            http3::serve(&worker, local, quic, permit.address_rate(), service).await;
            drop(permit);
        });
    };
    loop {
        let incoming = tokio::select! {
            biased;
            incoming = endpoint.accept() => incoming,
            _ = drain.draining() => break,
        };
        // None only if the endpoint is closed or its socket has failed.
        let Some(incoming) = incoming else { break };
        while connections.try_join_next().is_some() {}
        begin(&mut connections, incoming);
    }
    loop {
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() {
                break;
            },
            incoming = endpoint.accept() => match incoming {
                // A client that returns with an id from this process reaches this process.
                Some(incoming) if handover::is_handed_over() && incoming.remote_address_validated() => {
                    begin(&mut connections, incoming);
                }
                Some(incoming) => turn_away(incoming),
                None => break,
            },
            () = drain.cut() => break,
        }
    }
    // A closed endpoint refuses new clients, although the next process could serve them. So it is closed only if
    // connections are cut, which are few, or if there is no next process.
    if !connections.is_empty() || !leaves_sockets() {
        endpoint.close(varint(Code::H3_NO_ERROR.value()), b"");
    }
    // Waits long enough for the announcement to be sent.
    let farewell = timeout(FAREWELL, endpoint.wait_idle());
    tokio::pin!(farewell);
    loop {
        tokio::select! {
            biased;
            _ = &mut farewell => break,
            Some(incoming) = endpoint.accept() => turn_away(incoming),
        }
    }
    driving.abort();
}

/// Whether another process gets these sockets, or has them.
fn leaves_sockets() -> bool {
    socket::keeps() || handover::is_handed_over()
}

/// Handles a client that connects while draining. It is refused at once. But if another process has or will have these
/// sockets, it is ignored, so that it tries again.
fn turn_away(incoming: Incoming) {
    if leaves_sockets() { incoming.ignore() } else { incoming.refuse() }
}

fn open(
    worker: &WorkerContext,
    Socket { sockets, relay, shared, .. }: Socket,
) -> io::Result<(Endpoint, Driver)> {
    let index = u8::try_from(worker.index).map_err(io::Error::other)?;
    let sockets = sockets.into_iter().map(|socket| TokioRuntime.wrap_udp_socket(socket));
    let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
    let relay = relay.map(Relay::new).transpose()?;
    let socket = shared.router.demux(index, sockets, relay, worker.metrics.clone());
    Ok(Endpoint::new(shared.endpoint(index), shared.server.clone(), socket))
}

/// Whether a connection attempt may continue. If so, returns the address that the connection counts for. It counts from
/// now on if the client has proven it. Otherwise anybody could use up the connections of an address by naming it, so it
/// counts once the handshake succeeds.
fn admit(
    worker: &WorkerContext,
    incoming: Incoming,
    handshakes: usize,
) -> Option<(Incoming, Permit, Option<IpAddr>)> {
    if handshakes > UNPROVEN && !incoming.remote_address_validated() {
        // A retry is possible, since its address is not validated.
        incoming.retry();
        return None;
    }
    // As over TCP: a proxy's connections do not count for its address.
    let address = Some(incoming.remote_address().ip())
        .filter(|address| worker.config.proxies.source(Some(*address)) == Source::Connection);
    let is_proven = incoming.remote_address_validated();
    match worker.connections.admit(address) {
        Ok(mut permit) => {
            if !is_proven {
                drop(permit.take_address());
            }
            Some((incoming, permit, address))
        }
        Err(Refused::Address) if !is_proven => {
            incoming.retry();
            None
        }
        Err(why) => {
            worker.counts().refused(why);
            incoming.refuse();
            None
        }
    }
}

/// The connection, if its handshake succeeds in time.
async fn establish(worker: &WorkerContext, incoming: Incoming) -> Option<Connection> {
    let connecting = incoming.accept().ok()?;
    timeout(worker.config.limits.handshake_time, connecting).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_no_id_can_name_are_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let [chain, key] = testkit::certificate(&["localhost"]).write_in(&directory);
        let tls = Tls::new(&crate::config::Tls::new(chain, key), false).expect("a certificate");
        let any = "127.0.0.1:0".parse().expect("an address");
        let sockets = Socket::all(any, &Config::default(), &tls, cid::WORKERS + 1).expect("it receives");
        assert_eq!(sockets.len(), cid::WORKERS);
        assert!(sockets.iter().all(|socket| socket.sockets.len() == 1));
    }
}
