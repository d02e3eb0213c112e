//! The sockets of all workers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use service::socket::{Address, Listener, TcpOptions};

use crate::config::{Config, Speaks};
use crate::listen::Error;
use crate::quic;
use crate::tls::{self, Tls};

/// The sockets of one worker.
#[derive(Debug, Default)]
pub struct Sockets {
    /// To accept connections from.
    pub stream: Vec<Socket>,
    /// For QUIC, each on the port of one in `stream`.
    pub quic: Vec<quic::Socket>,
}

/// A socket to accept connections from.
#[derive(Debug)]
pub struct Socket {
    /// Non-blocking.
    pub listener: Listener,
    /// What it is for.
    pub place: Arc<Place>,
}

/// What the sockets of an endpoint have in common.
#[derive(Debug)]
pub struct Place {
    /// What is spoken.
    pub speaks: Speaks,
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

/// Binds everything for so many workers; the addresses are with the ports the kernel chose.
pub fn bind(
    config: &Config,
    tls: Option<&Tls>,
    workers: usize,
) -> Result<(Vec<Sockets>, Vec<Address>), Error> {
    let mut all: Vec<Sockets> = (0..workers).map(|_| Sockets::default()).collect();
    let mut addresses = Vec::new();
    for endpoint in &config.endpoints {
        let options = TcpOptions { reuse_port: true, ..TcpOptions::default() };
        let first = endpoint.address.listen(&options)?;
        let address = first.address().unwrap_or_else(|| endpoint.address.clone());
        let mut listeners = vec![first];
        for _ in 1..workers {
            listeners.push(match (&endpoint.address, &listeners[0]) {
                // A socket for each worker, on the port the first one got.
                (Address::Tcp(_), _) => address.listen(&options)?,
                // Only one can be bound; all workers accept from it.
                (_, Listener::Tcp(first)) => Listener::Tcp(first.try_clone().map_err(Error::Socket)?),
                (_, Listener::Unix(first)) => Listener::Unix(first.try_clone().map_err(Error::Socket)?),
            });
        }
        let tcp = if let Address::Tcp(address) = &address { Some(*address) } else { None };
        let quic_address = tcp.filter(|_| config.http3 && endpoint.speaks == Speaks::Tls);
        let place = Arc::new(Place {
            speaks: endpoint.speaks,
            local: tcp.filter(|address| !address.ip().is_unspecified()),
            alt_svc: quic_address.map(|address| AltSvc::new(address.port())),
        });
        for (sockets, listener) in all.iter_mut().zip(listeners) {
            sockets.stream.push(Socket { listener, place: Arc::clone(&place) });
        }
        if let (Some(address), Some(tls)) = (quic_address, tls) {
            let shared = quic::Shared::new(config, tls, workers).map_err(tls::Error::Versions)?;
            for sockets in &mut all {
                let socket = quic::bind(address).map_err(Error::Socket)?;
                sockets.quic.push(quic::Socket { socket, shared: Arc::clone(&shared) });
            }
        }
        addresses.push(address);
    }
    Ok((all, addresses))
}
