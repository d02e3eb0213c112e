//! How a listener behaves.

use std::any::Any;
use std::fmt::Debug;
use std::net::IpAddr;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use service::access_log::AccessLog;
use service::descriptors::HighWater;
use service::proxies::Proxies;
use service::socket::Address;
pub use service::tls::CertificateFiles;

/// How a listener behaves. [`Default`] listens nowhere; everything else has a default to run with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen, and what is spoken there.
    pub endpoints: Vec<Endpoint>,
    /// What threads there are.
    pub runtime: Runtime,
    /// Certificates; needed when an endpoint speaks TLS.
    pub tls: Option<Tls>,
    /// Which proxies are in front, by whom clients come. None by default.
    pub proxies: Proxies,
    /// What clients may take.
    pub limits: Limits,
    /// From how many file descriptors on accepting pauses, so that there are some for what those are sent that are let in.
    /// Up to the last by default.
    pub high_water: HighWater,
    /// Who else has a say in whom to let in. Nobody by default.
    pub admission: Option<Arc<dyn Admission>>,
    /// Who takes connections of HTTP/1.1 over TLS whose encryption can be the kernel's. Nobody by default.
    pub offload: Option<Arc<dyn Offload>>,
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
            runtime: Runtime::PerCore(Some(NonZero::<usize>::MIN)),
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
            self.endpoints.iter_mut().for_each(|endpoint| endpoint.speaks = Speaks::Tls);
        }
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            runtime: Runtime::default(),
            tls: None,
            proxies: Proxies::default(),
            limits: Limits::default(),
            high_water: HighWater::default(),
            admission: None,
            offload: None,
            refusals: None,
            local_addresses: true,
            access_log: None,
            tcp: Tcp::default(),
            http2: Http2::default(),
            http3: false,
            drain: Duration::from_secs(10),
            drain_grace: Duration::from_secs(1),
        }
    }
}

/// Lets clients in by their addresses, next to [`Limits`]: for what a service counts across several listeners.
pub trait Admission: Debug + Send + Sync {
    /// Lets in a connection from `address`, or does not. What it is let in as is kept for as long as the
    /// connection lives, and is in the [`Peer`](crate::Peer) of its requests.
    fn admit(&self, address: IpAddr) -> Option<Guest>;
}

/// What a connection was let in as.
pub type Guest = Arc<dyn Any + Send + Sync>;

/// Takes connections off the listener where the kernel speaks TLS ([`ktls`](crate::ktls)), for a service that sends
/// what the kernel has and it need not see itself, such as files.
pub trait Offload: Debug + Send + Sync {
    /// Serves this connection from now on.
    fn take(&self, connection: Offloaded);
}

/// Is told of requests that the listener refuses, on the worker that does: for counters that have all of them.
pub trait Refusals: Debug + Send + Sync {
    /// A request is answered with `status`.
    fn refused(&self, status: u16);
}

/// A connection of HTTP/1.1 over TLS that carries plain bytes on this side: the kernel has its keys.
#[derive(Debug)]
pub struct Offloaded {
    /// Non-blocking.
    pub socket: OwnedFd,
    /// Who is at the other end.
    pub peer: crate::peer::Peer,
    /// What was received already: at most what a record holds, 16 KiB.
    pub received: Vec<u8>,
    /// The line by which answers tell of HTTP/3, with its line end; empty where there is none.
    pub alt_svc: Box<[u8]>,
}

/// A place to listen on.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where.
    pub address: Address,
    /// What is spoken there.
    pub speaks: Speaks,
}

impl Endpoint {
    /// HTTP/1.1 in the clear.
    pub fn plain(address: Address) -> Self {
        Self { address, speaks: Speaks::Http1 }
    }

    /// TLS, and over it what the client prefers of HTTP/2 and HTTP/1.1.
    pub fn tls(address: Address) -> Self {
        Self { address, speaks: Speaks::Tls }
    }
}

/// What is spoken on an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1 in the clear.
    Http1,
    /// HTTP/2 in the clear to clients that know it beforehand (RFC 9113, section 3.3), HTTP/1.1 to others.
    Http1AndH2c,
    /// TLS, and over it what the client prefers of HTTP/2 and HTTP/1.1.
    Tls,
}

/// What threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// A thread, a runtime and a listening socket for each CPU, pinned where there is exactly one worker for
    /// each CPU. So many workers, or one for each CPU this process may use.
    PerCore(Option<NonZero<usize>>),
    /// One work-stealing runtime of so many threads and one listening socket an address, for comparison.
    MultiThread(Option<NonZero<usize>>),
}

impl Default for Runtime {
    fn default() -> Self {
        Self::PerCore(None)
    }
}

/// Certificates and how they are read.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The first is for clients that name no host, or none that any of them is for. Where several are for one name, a
    /// client is shown the first whose key's signatures it takes: of ECDSA, and of RSA for those that know no other.
    pub certificates: Vec<CertificateFiles>,
    /// How often the files are looked at for changes. 10 s by default; zero is never.
    pub poll: Duration,
    /// How long a key for session tickets is used; tickets made with the one before it are still taken. Whole seconds, 6 h by
    /// default and at most: whoever gets hold of a key can read what tickets under it protect (RFC 5077, section 5.5).
    pub ticket_key: Duration,
}

impl Tls {
    /// One certificate, its files looked at every 10 s, and a new key for session tickets every 6 h.
    pub fn new(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self::from_iter([CertificateFiles { chain: chain.into(), key: key.into() }])
    }

    /// The same with several; none where there are none.
    pub fn of(files: &[CertificateFiles]) -> Option<Self> {
        (!files.is_empty()).then(|| files.iter().cloned().collect())
    }
}

impl FromIterator<CertificateFiles> for Tls {
    fn from_iter<I: IntoIterator<Item = CertificateFiles>>(files: I) -> Self {
        Self {
            certificates: files.into_iter().collect(),
            poll: crate::tls::POLL,
            ticket_key: crate::tls::TICKET_KEY,
        }
    }
}

/// What clients may take. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of all workers together. 65,536 by default.
    pub connections: usize,
    /// Whether one more than that is let in all the same, and the connection of its worker ended that has waited for its
    /// client for longest: for the next request, the rest of a head, or that an answer is taken. It counts as one that
    /// was too slow. A crowd that stands still then keeps nobody out, but idle clients have to connect again. Off by
    /// default, which closes what is one too many at once.
    pub make_room: bool,
    /// Connections of one IPv4 address or one IPv6 /64, since that is what a subscriber is given (RFC 6177).
    /// 0 is no limit, the default: behind a NAT all come from one. Those of [`Config::proxies`] count as their clients'
    /// where they begin with a PROXY header, and otherwise not at all.
    pub connections_per_address: u32,
    /// A TLS or QUIC handshake, and the first bytes after it, or after connecting in the clear. 10 s by default.
    pub handshake_time: Duration,
    /// The request line and all header fields. 16 KiB by default.
    pub head_bytes: usize,
    /// A head from its first byte to its last. 10 s by default.
    pub head_time: Duration,
    /// Fields in a head. 100 by default.
    pub fields: usize,
    /// A request body. 2 MiB by default.
    pub body_bytes: u64,
    /// The bodies of all requests whose response has not begun, together: those that do not arrive along with their
    /// heads. A body counts as what it announces. Where it announces nothing it counts as `body_bytes`, or with GET and
    /// the like as 16 KiB, of which it may then have no more. Beyond, requests are refused with 503. 256 MiB by default;
    /// at least `body_bytes`.
    pub body_bytes_total: u64,
    /// What connections of HTTP/1.1 hold of answers that their clients are slow to take, together; pieces of a body that
    /// are the service's own do not count. Beyond, who finds no room is closed. 256 MiB by default.
    pub answer_bytes_total: u64,
    /// The longest pause within a request body. 30 s by default.
    pub body_idle: Duration,
    /// A request body from when it is first waited for to its end, however it drips. 5 min by default.
    pub body_time: Duration,
    /// A connection without a request, after the first. 60 s by default.
    pub idle: Duration,
    /// A response of which the client takes less than 16 KiB, or the rest where that is less. 30 s by default.
    pub write_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            make_room: false,
            connections_per_address: 0,
            handshake_time: Duration::from_secs(10),
            head_bytes: 16 * 1024,
            head_time: Duration::from_secs(10),
            fields: 100,
            body_bytes: 2 << 20,
            body_bytes_total: 256 << 20,
            answer_bytes_total: 256 << 20,
            body_idle: Duration::from_secs(30),
            body_time: Duration::from_secs(300),
            idle: Duration::from_secs(60),
            write_stall: Duration::from_secs(30),
        }
    }
}

/// TCP: what the kernel is told about listening sockets, and they pass on to connections. tcp(7) has the details.
///
/// `TCP_NODELAY` is always on: answers are written whole, and Nagle's algorithm would only delay them.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// How many connections may wait to be accepted; the kernel caps it by `net.core.somaxconn`. 16,384 by
    /// default, where standard libraries have 128 to 1,024.
    pub backlog: i32,
    /// How long a connection is idle before the kernel asks whether the client is still there (`SO_KEEPALIVE`,
    /// `TCP_KEEPIDLE`). 60 s by default.
    pub keep_alive: Option<Duration>,
    /// How many bytes may wait in a socket before a writer has to (`TCP_NOTSENT_LOWAT`). 128 KiB by default, as
    /// Cloudflare and tuned have it: less memory a slow client, and data that is fresher when it leaves.
    pub not_sent_low_water: Option<u32>,
    /// A connection is not accepted before its first bytes, or so long after (`TCP_DEFER_ACCEPT`, in whole
    /// seconds): a wake-up less for each. None by default, since clients that wait for the server, and those that
    /// connect beforehand, would be kept from being seen.
    pub defer_accept: Option<Duration>,
    /// Clients that have been here may send a request with their first packet (`TCP_FASTOPEN`, RFC 7413), so many
    /// at once. None by default: such a request may be delivered twice, and `net.ipv4.tcp_fastopen` has to allow it.
    pub fast_open: Option<u32>,
    /// The congestion control, such as `bbr` or `cubic`. None by default, which is the system's.
    pub congestion_control: Option<String>,
    /// Whether the kernel prefers for a connection the worker on whose CPU its packets arrive
    /// (`SO_INCOMING_CPU`); only where workers are pinned. Off by default: it pays where the network card's queues
    /// are spread over the CPUs, and crowds one worker where they are not, as on loopback.
    pub incoming_cpu: bool,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            backlog: 16_384,
            keep_alive: Some(Duration::from_secs(60)),
            not_sent_low_water: Some(128 * 1024),
            defer_accept: None,
            fast_open: None,
            congestion_control: None,
            incoming_cpu: false,
        }
    }
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
