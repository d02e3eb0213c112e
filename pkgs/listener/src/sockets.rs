//! The sockets of all workers.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use service::socket::{Address, Listener, TcpOptions};
use socket2::{Domain, Protocol, Type};

use crate::config::{Config, Endpoint, Speaks};
use crate::listen::Error;

/// The sockets of one worker.
#[derive(Debug, Default)]
pub struct Sockets {
    /// To accept connections from.
    pub stream: Vec<Socket>,
    /// For QUIC, each on the port of one in `stream`.
    pub udp: Vec<UdpSocket>,
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
pub fn bind(config: &Config, workers: usize) -> Result<(Vec<Sockets>, Vec<Address>), Error> {
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
            if let Address::Tcp(address) = &address
                && config.http3
                && endpoint.speaks == Speaks::Tls
            {
                sockets.udp.push(udp(*address).map_err(Error::Socket)?);
            }
        }
        addresses.push(address);
    }
    Ok((all, addresses))
}

fn udp(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
