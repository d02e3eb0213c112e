//! The sockets of all workers.

use std::sync::Arc;

use service::socket::{Address, Listener, TcpOptions};

use crate::config::{Config, Endpoint, Speaks};
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
    pub endpoint: Arc<Endpoint>,
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
        let endpoint = Arc::new(endpoint.clone());
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
        for (sockets, listener) in all.iter_mut().zip(listeners) {
            sockets.stream.push(Socket { listener, endpoint: Arc::clone(&endpoint) });
        }
        if let (Address::Tcp(address), Some(tls)) = (&address, tls)
            && config.http3
            && endpoint.speaks == Speaks::Tls
        {
            let shared = quic::Shared::new(config, tls, workers).map_err(tls::Error::Versions)?;
            for sockets in &mut all {
                let socket = quic::bind(*address).map_err(Error::Socket)?;
                sockets.quic.push(quic::Socket { socket, shared: Arc::clone(&shared) });
            }
        }
        addresses.push(address);
    }
    Ok((all, addresses))
}
