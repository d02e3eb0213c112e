//! The configuration of a listener.

mod limits;
mod tcp;
mod tls;

pub use limits::Limits;
pub use tcp::Tcp;
pub(crate) use tls::TICKET_KEY;
pub use tls::{CertificateFiles, POLL, Tls};

use std::fmt::Debug;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use service::access_log::AccessLog;
use service::address_limits::AddressLimits;
use service::descriptors::HighWater;
use service::proxies::Proxies;
use service::socket::Address;

use crate::early_hints::EarlyHints;
use crate::lifecycle::DRAIN_GRACE;
use crate::offload::Offload;

/// The configuration of a listener. [`Default`] listens nowhere; every other field has a usable default.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses to listen on, with their protocols.
    pub endpoints: Vec<Endpoint>,
    /// The number of workers. Each has a thread, a runtime and a listening socket, and is pinned if there is exactly
    /// one per CPU. By default one for each CPU this process may use.
    pub workers: Option<NonZero<usize>>,
    /// Certificates; required if an endpoint uses TLS.
    pub tls: Option<Tls>,
    /// The proxies in front. None by default.
    pub proxies: Proxies,
    /// What clients may take.
    pub limits: Limits,
    /// The number of file descriptors from which accepting pauses, so that some are left for answering accepted
    /// clients. The maximum by default.
    pub high_water: HighWater,
    /// Limits per address that are shared with other listeners; they replace [`Limits::connections_per_address`]. None
    /// by default.
    pub addresses: Option<Arc<AddressLimits>>,
    /// Takes over HTTP/1.1 connections over TLS that the kernel can encrypt. None by default.
    pub offload: Option<Arc<dyn Offload>>,
    /// Gives the early hints that clients of HTTP/2 and HTTP/3 receive before the answer. None by default.
    pub early_hints: Option<Arc<dyn EarlyHints>>,
    /// Is told about requests that never reach a service. None by default.
    pub refusals: Option<Arc<dyn Refusals>>,
    /// Whether [`Peer::local`](crate::PeerInfo::local) is the exact address that a client connected to if an endpoint
    /// listens on all addresses. This asks the kernel once per connection. On by default; otherwise it is the
    /// endpoint's address.
    pub local_addresses: bool,
    /// The access log. Logged requests have a [`RequestContext`](service::access_log::RequestContext) in their
    /// extensions. None by default.
    pub access_log: Option<AccessLog>,
    /// Settings of TCP.
    pub tcp: Tcp,
    /// Settings of HTTP/2.
    pub http2: Http2,
    /// Whether endpoints with TLS over TCP also serve HTTP/3 on the same UDP port, and announce it in `Alt-Svc` (RFC
    /// 9114, section 3.1.1). Off by default. Always off with PROXY headers, which UDP does not have.
    pub http3: bool,
    /// How long running requests have at shutdown before they are cut. 10 s by default.
    pub drain: Duration,
    /// How long connections without a request are kept at shutdown, so that a request on its way is answered; at most
    /// `drain`. 1 s by default.
    pub drain_grace: Duration,
}

impl Config {
    /// A listener for operators at one address, with one worker: 256 connections, of which stalled ones make room for
    /// others, and request bodies of 1 MiB, 8 MiB together.
    pub fn private(address: Address) -> Self {
        Self {
            endpoints: vec![Endpoint::plain(address)],
            workers: Some(NonZero::<usize>::MIN),
            limits: Limits {
                connections: 256,
                make_room: true,
                body_bytes: 1 << 20,
                body_bytes_total: 8 << 20,
                ..Limits::default()
            },
            drain: Duration::from_secs(1),
            ..Self::default()
        }
    }

    /// Serves only TLS at every endpoint, with these certificates. Changes nothing if there are none.
    #[must_use]
    pub fn by_tls(mut self, certificates: &[CertificateFiles]) -> Self {
        if let Some(tls) = Tls::of(certificates) {
            self.tls = Some(tls);
            self.endpoints.iter_mut().for_each(|endpoint| endpoint.protocol = EndpointProtocol::Tls);
        }
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            workers: None,
            tls: None,
            proxies: Proxies::default(),
            limits: Limits::default(),
            high_water: HighWater::default(),
            addresses: None,
            offload: None,
            early_hints: None,
            refusals: None,
            local_addresses: true,
            access_log: None,
            tcp: Tcp::default(),
            http2: Http2::default(),
            http3: false,
            drain: Duration::from_secs(10),
            drain_grace: DRAIN_GRACE,
        }
    }
}

/// Is told about requests that the listener refuses, on the worker that refuses them, so that counters are complete.
pub trait Refusals: Debug + Send + Sync {
    /// A request was answered with `status`.
    fn refused(&self, status: u16);
}

/// An address to listen on.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// Its protocols.
    pub protocol: EndpointProtocol,
}

impl Endpoint {
    /// HTTP/1.1 without TLS.
    pub fn plain(address: Address) -> Self {
        Self { address, protocol: EndpointProtocol::Http1 }
    }

    /// HTTP/1.1 without TLS, and HTTP/2 for clients with prior knowledge.
    pub fn h2c(address: Address) -> Self {
        Self { address, protocol: EndpointProtocol::Http1AndH2c }
    }

    /// TLS, with HTTP/2 or HTTP/1.1 as the client prefers.
    pub fn tls(address: Address) -> Self {
        Self { address, protocol: EndpointProtocol::Tls }
    }
}

/// The protocols of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointProtocol {
    /// HTTP/1.1 without TLS.
    Http1,
    /// Without TLS: HTTP/2 for clients with prior knowledge (RFC 9113, section 3.3), HTTP/1.1 for others.
    Http1AndH2c,
    /// TLS, with HTTP/2 or HTTP/1.1 as the client prefers.
    Tls,
}

/// Settings of HTTP/2. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Http2 {
    /// The most streams that a client may have open at once. 100 by default, the least that clients can count on (RFC
    /// 9113, section 6.5.2; RFC 9114, section 6.1): QUIC keeps a place for each, and with more of them the processor's
    /// caches do not hold the tables of a few connections.
    pub streams: u32,
    /// How much a client may send on a stream before it is read. 1 MiB by default.
    pub stream_window: u32,
    /// How much a client may send on a connection before it is read. 2 MiB by default.
    pub connection_window: u32,
    /// Whether windows grow with the measured bandwidth and delay. On by default; the two sizes above are then the
    /// initial ones.
    pub adaptive: bool,
}

impl Default for Http2 {
    fn default() -> Self {
        Self { streams: 100, stream_window: 1 << 20, connection_window: 2 << 20, adaptive: true }
    }
}
