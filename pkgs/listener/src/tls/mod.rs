//! TLS: one set of certificates and session tickets for TCP and QUIC.

// There is no safe binding for TLS's socket options and control messages.
#[allow(unsafe_code)]
pub mod ktls;
mod names;
mod store;
mod stores;
mod tickets;

pub use crate::config::POLL;
pub use store::Store;
pub use stores::Stores;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;

use crate::config;
use ktls::Suites;

/// The TLS state, made once for all workers.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificates, which can be reloaded at any time.
    pub store: Arc<Store>,
    /// Over TCP: TLS 1.3 and 1.2, HTTP/2 and HTTP/1.1.
    pub tcp: Arc<ServerConfig>,
    /// Over QUIC: TLS 1.3, HTTP/3.
    pub quic: Arc<ServerConfig>,
    /// The cipher suites that the kernel encrypts, if requested.
    pub offloaded: Suites,
}

/// Why certificates cannot be used. Each variant names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are none.
    #[error("an endpoint speaks TLS, but no certificate is configured")]
    None,
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: rustls::pki_types::pem::Error,
    },
    /// A file contains no certificate.
    #[error("{} has no certificate", .0.display())]
    Empty(PathBuf),
    /// The key has an unknown type, or is not the certificate's.
    #[error("{} is no key for {}: {source}", key.display(), chain.display())]
    Key {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        chain: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// There are no random numbers for the session tickets' key.
    #[error("cannot make a key for session tickets: there are no random numbers")]
    Tickets,
    /// The provider has no cipher suite for a version.
    #[error("cannot configure TLS: {0}")]
    Versions(rustls::Error),
}

impl Tls {
    /// Loads the certificates. With `offload`, finds out what the kernel encrypts.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub fn new(config: &config::Tls, offload: bool) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let store = Arc::new(Store::load(&config.certificates, Arc::clone(&provider))?);
        let ticketer = tickets::new(config)?;
        let server = |versions: &[&'static rustls::SupportedProtocolVersion], alpn: &[&[u8]]| {
            let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(versions)
                .map_err(Error::Versions)?
                .with_no_client_auth()
                .with_cert_resolver(Arc::clone(&store) as _);
            config.ticketer = Arc::clone(&ticketer);
            config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
            Ok(config)
        };
        let offloaded = if offload { Suites::probe() } else { Suites::default() };
        let mut tcp = server(&[&rustls::version::TLS13, &rustls::version::TLS12], &[b"h2", b"http/1.1"])?;
        let quic = server(&[&rustls::version::TLS13], &[b"h3"])?;
        tcp.enable_secret_extraction = offloaded.any();
        Ok(Self { store, tcp: Arc::new(tcp), quic: Arc::new(quic), offloaded })
    }
}
