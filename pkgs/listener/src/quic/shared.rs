//! The state that the workers of one address share.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac, rand};
use data_encoding::HEXLOWER;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};
use service::handover;
use socket2::Socket;

use super::cid_demux::CidRouter;
use super::hot_restart::{self, Predecessor};
use crate::config::{Config, Limits};
use crate::http3::{Congestion, LEAST_SEND_WINDOW};
use crate::tls::Tls;

/// Socket buffers of the size that quic-go found necessary for a fast link. The kernel grants up to `net.core.rmem_max`
/// and `wmem_max`.
const SOCKET_BUFFER: usize = 7_500_000;
/// Streams for the client's control, encoder and decoder, and a few of unknown types (RFC 9114, section 6.2: at least
/// three).
const UNIDIRECTIONAL: u32 = 8;
/// How many bytes of a handshake may arrive out of order.
const CRYPTO_BUFFER: usize = 16 * 1024;
/// How many connection attempts of a worker may wait, and how many bytes they may send meanwhile.
const INCOMING: usize = 1_024;
const INCOMING_BYTES: u64 = 64 * 1024;
const INCOMING_BYTES_ALL: u64 = 4 << 20;

/// The length of the secret from which keys are derived.
const SECRET: usize = 32;

/// The state that the workers of one address share. This is the routing of datagrams, and the key of the tokens that
/// prove an address, since a client may return through another worker or to another process.
#[derive(Debug)]
pub(crate) struct SharedEndpoint {
    pub(super) router: Arc<CidRouter>,
    pub(super) server: ServerConfig,
    /// The key of resets for connections that nobody knows any more. It is the same for all workers and for successive
    /// processes.
    reset: Arc<hmac::Key>,
}

impl SharedEndpoint {
    /// For this many workers on `address`.
    ///
    /// # Errors
    /// When the TLS provider lacks what QUIC needs.
    pub(super) fn new(
        config: &Config,
        tls: &Tls,
        workers: usize,
        address: SocketAddr,
    ) -> Result<Arc<Self>, rustls::Error> {
        let crypto = QuicServerConfig::try_from(Arc::clone(&tls.quic))
            .map_err(|_| rustls::Error::General("QUIC needs AES-128-GCM".to_owned()))?;
        let secret = secret(address)?;
        let tokens = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tokens").extract(&secret);
        let mut server = ServerConfig::new(Arc::new(crypto), Arc::new(tokens));
        server
            .transport_config(Arc::new(transport(config, address)))
            .max_incoming(INCOMING)
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES_ALL);
        let router = Arc::new(CidRouter::new(workers, Predecessor::take(address)));
        Ok(Arc::new(Self { router, server, reset: Arc::new(reset_key(&secret)) }))
    }

    /// Offers these workers' relays, and those of previous processes, to the next process. Once that reads the sockets,
    /// this process no longer does.
    pub(super) fn offer(&self, address: SocketAddr, relays: &[OwnedFd]) {
        let name = hot_restart::relay_name(self.router.ids(), address);
        // In this order, so that the last comes first.
        relays.iter().for_each(|relay| handover::offer(&name, relay));
        self.router.predecessors().iter().for_each(|predecessor| predecessor.offer(address));
        let router = Arc::clone(&self.router);
        handover::on_handed_over(move |left| {
            // If the next process has no QUIC here, this one continues to read for its connections.
            if !left.contains(&name) {
                router.hand_over();
            }
        });
    }

    /// The endpoint of one worker.
    pub(super) fn endpoint(&self, worker: u8) -> EndpointConfig {
        let mut config = EndpointConfig::new(Arc::clone(&self.reset) as _);
        let router = Arc::clone(&self.router);
        config.cid_generator(move || Box::new(router.generator(worker)));
        config
    }
}

/// The secret from which keys are derived. It is the same for successive processes on an address, so the next process
/// accepts tokens of the previous one, and can reset connections of one that has ended.
fn secret(address: SocketAddr) -> Result<[u8; SECRET], rustls::Error> {
    let name = format!("quic secret {address}");
    let known = handover::told(&name).and_then(|text| HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok());
    let secret = match known {
        Some(secret) => secret,
        None => {
            let mut secret = [0; SECRET];
            rand::fill(&mut secret).map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
            secret
        }
    };
    handover::tell(&name, &HEXLOWER.encode(&secret));
    Ok(secret)
}

/// A separate key, so that tokens reveal nothing about it.
fn reset_key(secret: &[u8; SECRET]) -> hmac::Key {
    let made = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"resets");
    hmac::Key::new(hmac::HMAC_SHA256, made.as_ref())
}

fn transport(config: &Config, address: SocketAddr) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(config.http2.streams.into())
        .max_concurrent_uni_streams(UNIDIRECTIONAL.into())
        .stream_receive_window(config.http2.stream_window.into())
        .receive_window(config.http2.connection_window.into())
        .congestion_controller_factory(Arc::new(Congestion::default()))
        .send_window(LEAST_SEND_WINDOW)
        .crypto_buffer_size(CRYPTO_BUFFER)
        .max_idle_timeout(Some(idle(&config.limits)))
        // The client keeps a connection alive if it needs it.
        .keep_alive_interval(None)
        .mtu_discovery_config(Some(mtu_discovery(address)))
        .enable_segmentation_offload(true)
        // HTTP/3 does not use QUIC's datagrams.
        .datagram_receive_buffer_size(None);
    transport
}

/// Finds the path's MTU, up to Ethernet's 1,500 bytes less the headers of IP (RFC 791: 20 bytes; RFC 8200: 40) and UDP
/// (RFC 768: 8). A socket for IPv6 may also have clients with IPv4, which then get slightly less than possible.
fn mtu_discovery(address: SocketAddr) -> MtuDiscoveryConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(1500 - 8 - if address.is_ipv4() { 20 } else { 40 });
    discovery
}

/// When a connection on which nothing arrives is dropped without notice. This is later than every timeout that closes
/// it with notice.
fn idle(limits: &Limits) -> IdleTimeout {
    let longest: Duration = limits.idle.max(limits.body_idle).max(limits.write_stall);
    longest.saturating_mul(2).try_into().unwrap_or_else(|_| VarInt::MAX.into())
}

/// Enlarges the buffers as far as allowed. Smaller buffers only lose datagrams sooner.
pub(super) fn enlarge_buffers(socket: &Socket) {
    for (set, name) in [
        (socket.set_recv_buffer_size(SOCKET_BUFFER), "receive"),
        (socket.set_send_buffer_size(SOCKET_BUFFER), "send"),
    ] {
        if let Err(error) = set {
            tracing::debug!(%error, "cannot enlarge the {name} buffer of a QUIC socket");
        }
    }
}
