//! Who is at the other end.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::Guest;

/// Who is at the other end of a request's connection; in every request's extensions. Clones share.
#[derive(Clone, Debug)]
pub struct Peer(Arc<PeerInfo>);

/// What a [`Peer`] tells.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// The client's address; absent on Unix sockets. Where a trusted proxy told it, as it did.
    pub remote: Option<SocketAddr>,
    /// The address the client connected to; absent on Unix sockets.
    pub local: Option<SocketAddr>,
    /// What is spoken.
    pub protocol: Protocol,
    /// What the handshake agreed on; absent in the clear.
    pub tls: Option<TlsInfo>,
    /// What [`Config::admission`](crate::Config::admission) let the client in as.
    pub guest: Option<Guest>,
}

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
}

impl std::ops::Deref for Peer {
    type Target = PeerInfo;

    fn deref(&self) -> &PeerInfo {
        &self.0
    }
}
