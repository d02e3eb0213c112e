//! The sockets of all workers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use service::socket::{Address, Listener, TcpOptions};
use service::workers;

use crate::config::{Config, Endpoint, EndpointProtocol};
use crate::error::Error;
use crate::net::sockopt;
use crate::quic;
use crate::tls::Tls;

/// How often the kernel is asked for a port that is free for TCP and for UDP. Were every second one taken for UDP, all of
/// them would be once in 4 * 10^9 times.
const PORT_TRIES: u32 = 32;

/// The sockets of one worker.
#[derive(Debug, Default)]
pub struct WorkerSockets {
    /// To accept connections from.
    pub stream: Vec<ListenSocket>,
    /// For QUIC, each on the port of one in `stream`.
    pub quic: Vec<quic::Socket>,
}

/// A socket to accept connections from.
#[derive(Debug)]
pub struct ListenSocket {
    /// Non-blocking.
    pub listener: Listener,
    /// What it is for.
    pub endpoint: Arc<BoundEndpoint>,
}

/// What the sockets of an endpoint have in common.
#[derive(Debug)]
pub struct BoundEndpoint {
    /// What is spoken.
    pub protocol: EndpointProtocol,
    /// The address of every connection's own end; absent where each has another, and on Unix sockets.
    pub local: Option<SocketAddr>,
    /// Where HTTP/3 is spoken, for clients of TLS.
    pub alt_svc: Option<AltSvc>,
}

/// The field by which clients learn of HTTP/3 (RFC 7838).
#[derive(Clone, Debug)]
pub struct AltSvc {
    /// Its value.
    pub value: HeaderValue,
    /// Its line in HTTP/1.1.
    pub line: Box<[u8]>,
}

impl AltSvc {
    fn new(port: u16) -> Self {
        // For a day, which is also what is assumed where nothing is said (section 3.1).
        let text = format!("h3=\":{port}\"; ma=86400");
        let line = format!("alt-svc: {text}\r\n").into_bytes().into();
        Self { value: HeaderValue::from_maybe_shared(Bytes::from(text)).expect("ASCII"), line }
    }
}

/// All sockets of a listener.
#[derive(Debug, Default)]
pub struct BoundSockets {
    /// By worker.
    pub workers: Vec<WorkerSockets>,
    /// By endpoint, with the ports the kernel chose.
    pub addresses: Vec<Address>,
}

impl BoundSockets {
    /// Binds everything for so many workers, but for what another process hands over.
    pub fn new(config: &Config, tls: Option<&Tls>, workers: usize) -> Result<Self, Error> {
        let mut bound =
            Self { workers: (0..workers).map(|_| WorkerSockets::default()).collect(), addresses: Vec::new() };
        for endpoint in &config.endpoints {
            // A port that the kernel chooses is free for TCP; for UDP it may be somebody's. Then another.
            let chosen = matches!(&endpoint.address, Address::Tcp(address) if address.port() == 0);
            let mut tries = if chosen { PORT_TRIES } else { 1 };
            loop {
                tries -= 1;
                let (address, listeners) = listeners(endpoint, config, workers)?;
                match bound.add(endpoint, config, tls, address, listeners) {
                    Err(error) if tries > 0 && is_taken(&error) => {}
                    added => break added?,
                }
            }
        }
        Ok(bound)
    }

    /// Shares the sockets of an endpoint out among the workers.
    fn add(
        &mut self,
        endpoint: &Endpoint,
        config: &Config,
        tls: Option<&Tls>,
        address: Address,
        listeners: Vec<Listener>,
    ) -> Result<(), Error> {
        let tcp = if let Address::Tcp(address) = &address { Some(*address) } else { None };
        // Who came past the proxies would not be told from their clients.
        let http3 = config.http3 && !config.proxies.speak_proxy_protocol();
        let quic_address = tcp.filter(|_| http3 && endpoint.protocol == EndpointProtocol::Tls);
        let endpoint = Arc::new(BoundEndpoint {
            protocol: endpoint.protocol,
            local: tcp.filter(|address| !config.local_addresses || !address.ip().is_unspecified()),
            alt_svc: quic_address.map(|address| AltSvc::new(address.port())),
        });
        let workers = self.workers.len();
        // First, since its port may be taken: then nothing of the endpoint is kept.
        let mut datagrams = Vec::new();
        if let (Some(address), Some(tls)) = (quic_address, tls) {
            datagrams = quic::Socket::all(address, config, tls, workers)?;
        }
        for (index, listener) in listeners.into_iter().enumerate() {
            if let Listener::Tcp(listener) = &listener {
                let cpu = config.tcp.incoming_cpu && workers::pinnable(workers);
                let cpu = workers::allowed().get(index % workers).filter(|_| cpu);
                let cpu = cpu.and_then(|cpu| u32::try_from(*cpu).ok());
                sockopt::apply(listener, &config.tcp, cpu).map_err(Error::Socket)?;
            }
            self.workers[index % workers]
                .stream
                .push(ListenSocket { listener, endpoint: Arc::clone(&endpoint) });
        }
        for (sockets, socket) in self.workers.iter_mut().zip(datagrams) {
            sockets.quic.push(socket);
        }
        self.addresses.push(address);
        Ok(())
    }
}

/// Whether an address is somebody else's.
fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Listen(error) if error.is_taken())
}

/// At least one socket for each worker, and where they listen.
fn listeners(
    endpoint: &Endpoint,
    config: &Config,
    workers: usize,
) -> Result<(Address, Vec<Listener>), Error> {
    let options = TcpOptions { reuse_port: true, backlog: config.tcp.backlog, ..TcpOptions::default() };
    let listeners = endpoint.address.listen_each(workers, &options)?;
    let address = listeners[0].address().unwrap_or_else(|| endpoint.address.clone());
    Ok((address, listeners))
}
