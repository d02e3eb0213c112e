//! TLS: one set of certificates and of session tickets for TCP and QUIC.

// Socket options and control messages of TLS have no safe binding.
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

/// What TLS needs, made once for all workers.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificates, to be loaded anew at any time.
    pub store: Arc<Store>,
    /// Over TCP: TLS 1.3 and 1.2, HTTP/2 and HTTP/1.1.
    pub tcp: Arc<ServerConfig>,
    /// Over QUIC: TLS 1.3, HTTP/3.
    pub quic: Arc<ServerConfig>,
    /// What the kernel encrypts of it, where that is asked for.
    pub offloaded: Suites,
}

/// Why certificates cannot be used; each says which file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are none.
    #[error("an endpoint speaks TLS, but no certificate is configured")]
    None,
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why not.
        source: rustls::pki_types::pem::Error,
    },
    /// A file has no certificate in it.
    #[error("{} has no certificate", .0.display())]
    Empty(PathBuf),
    /// The key is of an unknown kind or not the certificate's.
    #[error("{} is no key for {}: {source}", key.display(), chain.display())]
    Key {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        chain: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// No random numbers for the session tickets' key.
    #[error("cannot make a key for session tickets: there are no random numbers")]
    Tickets,
    /// The provider has no cipher suite for a version.
    #[error("cannot configure TLS: {0}")]
    Versions(rustls::Error),
}

impl Tls {
    /// Loads the certificates; with `offload`, finds out what the kernel encrypts.
    ///
    /// # Errors
    /// When one of them cannot be used.
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
