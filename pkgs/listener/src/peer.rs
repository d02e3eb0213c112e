//! Who is at the other end.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use request_head::Lines;
use service::address_limits::AddressRate;
use service::proxies::Proxies;
use service::request_id::RequestId;

/// Who is at the other end of a request's connection; in every request's extensions. Clones share.
#[derive(Clone, Debug)]
pub struct Peer(Arc<PeerInfo>);

/// What a [`Peer`] tells.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// The other end's address, or the one that a PROXY header told; absent on Unix sockets. Where the client of a
    /// request is, says [`Peer::client`].
    pub remote: Option<SocketAddr>,
    /// The address the client connected to ([`Config::local_addresses`](crate::Config::local_addresses)); absent on Unix
    /// sockets.
    pub local: Option<SocketAddr>,
    /// The user at the other end of a Unix socket, by the kernel's word (SO_PEERCRED); absent on all others.
    pub uid: Option<u32>,
    /// What is spoken.
    pub protocol: Protocol,
    /// What the handshake agreed on; absent in the clear.
    pub tls: Option<TlsInfo>,
    /// How often its address may ask, where [`Config::addresses`](crate::Config::addresses) limits that.
    pub address_rate: Option<AddressRate>,
    /// Where the other end is a trusted proxy by whose word the client of each request is known: all of those.
    pub proxies: Option<Proxies>,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What is spoken on a connection.
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
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Http3];

    /// As metrics label it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Http3 => "http3",
        }
    }
}

/// What a TLS handshake agreed on.
#[derive(Clone, Debug)]
pub struct TlsInfo {
    /// The version.
    pub version: Option<rustls::ProtocolVersion>,
    /// The cipher suite.
    pub cipher: Option<rustls::CipherSuite>,
    /// The host the client named.
    pub server_name: Option<Box<str>>,
}

impl Peer {
    /// One to share between the requests of a connection.
    pub fn new(info: PeerInfo) -> Self {
        Self(Arc::new(info))
    }

    /// Where the client of a request with these fields is: what a trusted proxy says, and otherwise the connection.
    #[inline]
    pub fn client(&self, fields: &HeaderMap) -> Option<IpAddr> {
        let remote = self.remote.map(|remote| remote.ip());
        let Some(proxies) = &self.proxies else { return remote };
        let lines = |name| fields.get_all(name).into_iter().map(HeaderValue::as_bytes);
        proxies.client(remote, lines(header::FORWARDED), lines(X_FORWARDED_FOR))
    }

    /// The same of a request of which these lines are all that was made.
    pub(crate) fn client_of(&self, head: &Lines<'_, '_>) -> Option<IpAddr> {
        let remote = self.remote.map(|remote| remote.ip());
        let Some(proxies) = &self.proxies else { return remote };
        proxies.client(remote, values(head, "forwarded"), values(head, "x-forwarded-for"))
    }

    /// The id of a request that a trusted proxy tells, where it is well-formed and the only one.
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
