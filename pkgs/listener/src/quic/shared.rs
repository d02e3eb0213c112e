//! What the workers of one address share.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac, rand};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};
use service::handover;
use socket2::Socket;

use super::cid_demux::CidRouter;
use super::hot_restart::{self, Predecessor};
use crate::config::{Config, Limits};
use crate::hex;
use crate::http3::SEND_WINDOW;
use crate::tls::Tls;

/// Socket buffers: what quic-go found that a fast link needs. The kernel grants what `net.core.rmem_max` and
/// `wmem_max` allow.
const SOCKET_BUFFER: usize = 7_500_000;
/// Streams for the client's control, encoder and decoder, and a few of types unknown to us (RFC 9114,
/// section 6.2: at least three).
const UNIDIRECTIONAL: u32 = 8;
/// Bytes of a handshake that arrive out of order.
const CRYPTO_BUFFER: usize = 16 * 1024;
/// Connection attempts of a worker that wait to be looked at, and what they may send meanwhile.
const INCOMING: usize = 1_024;
const INCOMING_BYTES: u64 = 64 * 1024;
const INCOMING_BYTES_ALL: u64 = 4 << 20;

/// Bytes of what keys are made of.
const SECRET: usize = 32;

/// What the workers of one address share: one key for the tokens that prove an address, as a client may come
/// back through another worker or to another process, and what routes datagrams.
#[derive(Debug)]
pub(crate) struct SharedEndpoint {
    pub(super) router: Arc<CidRouter>,
    pub(super) server: ServerConfig,
    /// For the resets that tell clients of connections that nobody knows any more: of all workers, and of the processes
    /// that follow each other.
    reset: Arc<hmac::Key>,
}

impl SharedEndpoint {
    /// For so many workers on `address`.
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
            .transport_config(Arc::new(transport(config)))
            .max_incoming(INCOMING)
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES_ALL);
        let router = Arc::new(CidRouter::new(workers, Predecessor::take(address)));
        Ok(Arc::new(Self { router, server, reset: Arc::new(reset_key(&secret)) }))
    }

    /// Has these workers, by their relays, and the ways to the processes before this one handed to the next. Once that reads
    /// the sockets, nobody here does any more.
    pub(super) fn offer(&self, address: SocketAddr, relays: &[OwnedFd]) {
        let name = hot_restart::relay_name(self.router.ids(), address);
        // In this order, so that the last comes first.
        relays.iter().for_each(|relay| handover::offer(&name, relay));
        self.router.predecessors().iter().for_each(|predecessor| predecessor.offer(address));
        let router = Arc::clone(&self.router);
        handover::on_handed_over(move |left| {
            // A process that speaks no QUIC here leaves it to this one to read what is for its connections.
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

/// What keys are made of: the same for the processes that follow each other on an address, so that tokens of one are good
/// with the next, and who has a connection with one that is gone is told so by the next.
fn secret(address: SocketAddr) -> Result<[u8; SECRET], rustls::Error> {
    let name = format!("quic secret {address}");
    let known = handover::told(&name).and_then(|text| hex::decode(&text));
    let secret = match known {
        Some(secret) => secret,
        None => {
            let mut secret = [0; SECRET];
            rand::fill(&mut secret).map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
            secret
        }
    };
    handover::tell(&name, &hex::encode(&secret));
    Ok(secret)
}

/// Of its own, so that a token tells nothing of it.
fn reset_key(secret: &[u8; SECRET]) -> hmac::Key {
    let made = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"resets");
    hmac::Key::new(hmac::HMAC_SHA256, made.as_ref())
}

fn transport(config: &Config) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(config.http2.streams.into())
        .max_concurrent_uni_streams(UNIDIRECTIONAL.into())
        .stream_receive_window(config.http2.stream_window.into())
        .receive_window(config.http2.connection_window.into())
        .send_window(SEND_WINDOW)
        .crypto_buffer_size(CRYPTO_BUFFER)
        .max_idle_timeout(Some(idle(&config.limits)))
        // The client keeps a connection alive if it wants it.
        .keep_alive_interval(None)
        .mtu_discovery_config(Some(MtuDiscoveryConfig::default()))
        .enable_segmentation_offload(true)
        // HTTP/3 has no use for datagrams of its own.
        .datagram_receive_buffer_size(None);
    transport
}

/// When a connection on which nothing at all arrives is given up without a word: later than it would be closed, with
/// one, for any other reason.
fn idle(limits: &Limits) -> IdleTimeout {
    let longest: Duration = limits.idle.max(limits.body_idle).max(limits.write_stall);
    longest.saturating_mul(2).try_into().unwrap_or_else(|_| VarInt::MAX.into())
}

/// As far as it is allowed; smaller buffers lose datagrams sooner, no more.
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
