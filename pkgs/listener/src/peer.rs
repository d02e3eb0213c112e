//! The client of a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use request_head::Lines;
use service::address_limits::AddressRate;
use service::proxies::Proxies;
use service::request_id::RequestId;

/// The other end of a request's connection, in every request's extensions. Clones share it.
#[derive(Clone, Debug)]
pub struct Peer(Arc<PeerInfo>);

/// The data of a [`Peer`].
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// The other end's address, or the one in a PROXY header; none on Unix sockets. The client's address of a request
    /// is [`Peer::client`].
    pub remote: Option<SocketAddr>,
    /// The address that the client connected to ([`Config::local_addresses`](crate::Config::local_addresses)); none on
    /// Unix sockets.
    pub local: Option<SocketAddr>,
    /// The user at the other end of a Unix socket, according to the kernel (SO_PEERCRED); none on other sockets.
    pub uid: Option<u32>,
    /// The connection's protocol.
    pub protocol: Protocol,
    /// The handshake's result; none without TLS.
    pub tls: Option<TlsInfo>,
    /// The rate limit of its address, if [`Config::addresses`](crate::Config::addresses) has one.
    pub address_rate: Option<AddressRate>,
    /// The trusted proxies, if the other end is one that reports each request's client in fields.
    pub proxies: Option<Proxies>,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1 or 1.0.
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Protocol {
    /// All protocols, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Http3];

    /// Its label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Http3 => "http3",
        }
    }
}

/// The result of a TLS handshake.
#[derive(Clone, Debug)]
pub struct TlsInfo {
    /// The version.
    pub version: Option<rustls::ProtocolVersion>,
    /// The cipher suite.
    pub cipher: Option<rustls::CipherSuite>,
    /// The host that the client named.
    pub server_name: Option<Box<str>>,
}

impl Peer {
    /// Makes a peer that the requests of a connection share.
    pub fn new(info: PeerInfo) -> Self {
        Self(Arc::new(info))
    }

    /// The client's address for a request with these fields, as a trusted proxy or else the connection reports it.
    #[inline]
    pub fn client(&self, fields: &HeaderMap) -> Option<IpAddr> {
        let remote = self.remote.map(|remote| remote.ip());
        let Some(proxies) = &self.proxies else { return remote };
        let lines = |name| fields.get_all(name).into_iter().map(HeaderValue::as_bytes);
        proxies.client(remote, lines(header::FORWARDED), lines(X_FORWARDED_FOR))
    }

    /// The same for a request that is available only as these lines.
    pub(crate) fn client_of(&self, head: &Lines<'_, '_>) -> Option<IpAddr> {
        let remote = self.remote.map(|remote| remote.ip());
        let Some(proxies) = &self.proxies else { return remote };
        proxies.client(remote, values(head, "forwarded"), values(head, "x-forwarded-for"))
    }

    /// A request's id from a trusted proxy, if it is well-formed and the only one.
    pub(crate) fn given_id(&self, head: &Lines<'_, '_>) -> Option<RequestId> {
        self.proxies.as_ref()?;
        let mut given = values(head, "x-request-id");
        given.next().filter(|_| given.next().is_none()).and_then(RequestId::parse)
    }
}

/// The values of a field's lines.
fn values<'r, 'b>(
    head: &Lines<'r, 'b>,
    name: &'static str,
) -> impl DoubleEndedIterator<Item = &'b [u8]> + use<'r, 'b> {
    let fields = head.fields;
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

impl std::ops::Deref for Peer {
    type Target = PeerInfo;

    fn deref(&self) -> &PeerInfo {
        &self.0
    }
}
