//! How a listener behaves.

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

/// How a listener behaves. [`Default`] listens nowhere; everything else has a default to run with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen, and what is spoken there.
    pub endpoints: Vec<Endpoint>,
    /// Workers: a thread, a runtime and a listening socket for each, pinned where there is exactly one for each CPU. One for
    /// each CPU this process may use by default.
    pub workers: Option<NonZero<usize>>,
    /// Certificates; needed when an endpoint speaks TLS.
    pub tls: Option<Tls>,
    /// Which proxies are in front, by whom clients come. None by default.
    pub proxies: Proxies,
    /// What clients may take.
    pub limits: Limits,
    /// From how many file descriptors on accepting pauses, so that there are some for what those are sent that are let in.
    /// Up to the last by default.
    pub high_water: HighWater,
    /// What addresses may take, where other listeners share that; instead of [`Limits::connections_per_address`]. None by
    /// default.
    pub addresses: Option<Arc<AddressLimits>>,
    /// Who takes connections of HTTP/1.1 over TLS whose encryption can be the kernel's. Nobody by default.
    pub offload: Option<Arc<dyn Offload>>,
    /// Who says what clients of HTTP/2 and HTTP/3 learn before they are answered. Nobody by default.
    pub early_hints: Option<Arc<dyn EarlyHints>>,
    /// Who is told of requests that no service gets to see. Nobody by default.
    pub refusals: Option<Arc<dyn Refusals>>,
    /// Whether [`Peer::local`](crate::PeerInfo::local) is the very address a client connected to where an endpoint is every
    /// address, for which the kernel is asked once a connection. On by default; else it is the endpoint's there.
    pub local_addresses: bool,
    /// Where requests are logged. A request that is has a [`RequestContext`](service::access_log::RequestContext) in its
    /// extensions. Nowhere by default.
    pub access_log: Option<AccessLog>,
    /// TCP.
    pub tcp: Tcp,
    /// HTTP/2.
    pub http2: Http2,
    /// Whether endpoints that speak TLS over TCP also speak HTTP/3 on the same port of UDP, and say so by
    /// `Alt-Svc` (RFC 9114, section 3.1.1). Off by default, and where connections begin with a PROXY header: over UDP
    /// there is none.
    pub http3: bool,
    /// How long requests in flight have from the call to stop until they are cut. 10 s by default.
    pub drain: Duration,
    /// How long connections without a request are kept from the call to stop on, so that a request on its way is
    /// answered; no longer than `drain`. 1 s by default.
    pub drain_grace: Duration,
}

impl Config {
    /// For operators at an address, by one worker: 256 connections, of which those that stand still make room for others,
    /// and request bodies of 1 MiB, 8 MiB together.
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

    /// Speaks TLS at every endpoint, and nothing else, with these certificates; as it is where there are none.
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

/// Is told of requests that the listener refuses, on the worker that does: for counters that have all of them.
pub trait Refusals: Debug + Send + Sync {
    /// A request is answered with `status`.
    fn refused(&self, status: u16);
}

/// A place to listen on.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where.
    pub address: Address,
    /// What is spoken there.
    pub protocol: EndpointProtocol,
}

impl Endpoint {
    /// HTTP/1.1 in the clear.
    pub fn plain(address: Address) -> Self {
        Self { address, protocol: EndpointProtocol::Http1 }
    }

    /// HTTP/1.1 in the clear, and HTTP/2 to clients that know it beforehand.
    pub fn h2c(address: Address) -> Self {
        Self { address, protocol: EndpointProtocol::Http1AndH2c }
    }

    /// TLS, and over it what the client prefers of HTTP/2 and HTTP/1.1.
    pub fn tls(address: Address) -> Self {
        Self { address, protocol: EndpointProtocol::Tls }
    }
}

/// The protocols of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointProtocol {
    /// HTTP/1.1 in the clear.
    Http1,
    /// HTTP/2 in the clear to clients that know it beforehand (RFC 9113, section 3.3), HTTP/1.1 to others.
    Http1AndH2c,
    /// TLS, and over it what the client prefers of HTTP/2 and HTTP/1.1.
    Tls,
}

/// HTTP/2. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Http2 {
    /// Streams a client may have open at once. 256 by default.
    pub streams: u32,
    /// What a client may send on a stream before it is read. 1 MiB by default.
    pub stream_window: u32,
    /// What a client may send on a connection before it is read. 2 MiB by default.
    pub connection_window: u32,
    /// Whether windows grow with the measured bandwidth and delay. On by default, which makes the two above
    /// what they start from.
    pub adaptive: bool,
}

impl Default for Http2 {
    fn default() -> Self {
        Self { streams: 256, stream_window: 1 << 20, connection_window: 2 << 20, adaptive: true }
    }
}
