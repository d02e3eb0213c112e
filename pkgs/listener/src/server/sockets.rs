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

/// How often to ask the kernel for a port that is free for both TCP and UDP. If every second one were taken for UDP,
/// all attempts would fail once in 4 * 10^9 times.
const PORT_TRIES: u32 = 32;

/// The sockets of one worker.
#[derive(Debug, Default)]
pub struct WorkerSockets {
    /// To accept connections from.
    pub stream: Vec<ListenSocket>,
    /// QUIC sockets, each on the port of one in `stream`. There may be fewer than workers.
    pub quic: Vec<quic::Socket>,
}

/// A socket that accepts connections.
#[derive(Debug)]
pub struct ListenSocket {
    /// Non-blocking.
    pub listener: Listener,
    /// Its endpoint.
    pub endpoint: Arc<BoundEndpoint>,
}

/// What the sockets of an endpoint share.
#[derive(Debug)]
pub struct BoundEndpoint {
    /// The protocol.
    pub protocol: EndpointProtocol,
    /// The local address of every connection. None if it differs between connections, and on Unix sockets.
    pub local: Option<SocketAddr>,
    /// The announcement of HTTP/3, for clients over TLS.
    pub alt_svc: Option<AltSvc>,
}

/// The field that announces HTTP/3 (RFC 7838).
#[derive(Clone, Debug)]
pub struct AltSvc {
    /// Its value.
    pub value: HeaderValue,
    /// The field as an HTTP/1.1 line.
    pub line: Box<[u8]>,
}

impl AltSvc {
    fn new(port: u16) -> Self {
        // Valid for a day, which is also the default (section 3.1).
        let text = format!("h3=\":{port}\"; ma=86400");
        let line = format!("alt-svc: {text}\r\n").into_bytes().into();
        Self { value: HeaderValue::from_maybe_shared(Bytes::from(text)).expect("ASCII"), line }
    }
}

/// All sockets of a listener.
#[derive(Debug, Default)]
pub struct BoundSockets {
    /// The sockets of each worker.
    pub workers: Vec<WorkerSockets>,
    /// The address of each endpoint, with the port that the kernel chose.
    pub addresses: Vec<Address>,
}

impl BoundSockets {
    /// Binds everything for this many workers, except sockets that another process hands over.
    pub fn new(config: &Config, tls: Option<&Tls>, workers: usize) -> Result<Self, Error> {
        let mut bound =
            Self { workers: (0..workers).map(|_| WorkerSockets::default()).collect(), addresses: Vec::new() };
        for endpoint in &config.endpoints {
            // A port that the kernel chose is free for TCP, but may be taken for UDP. Then try another.
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

    /// Distributes the sockets of an endpoint over the workers.
    fn add(
        &mut self,
        endpoint: &Endpoint,
        config: &Config,
        tls: Option<&Tls>,
        address: Address,
        listeners: Vec<Listener>,
    ) -> Result<(), Error> {
        let tcp = if let Address::Tcp(address) = &address { Some(*address) } else { None };
        // Clients that bypass the proxies over UDP could not be told apart from those of the proxies.
        let http3 = config.http3 && !config.proxies.speak_proxy_protocol();
        let quic_address = tcp.filter(|_| http3 && endpoint.protocol == EndpointProtocol::Tls);
        let endpoint = Arc::new(BoundEndpoint {
            protocol: endpoint.protocol,
            local: tcp.filter(|address| !config.local_addresses || !address.ip().is_unspecified()),
            alt_svc: quic_address.map(|address| AltSvc::new(address.port())),
        });
        let workers = self.workers.len();
        // UDP comes first, since its port may be taken. Then nothing of the endpoint is kept.
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

/// Whether an address is taken.
fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Listen(error) if error.is_taken())
}

/// At least one socket per worker, and their addresses.
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
