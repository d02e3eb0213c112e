//! Settings of certificates.

use std::path::PathBuf;
use std::time::Duration;

pub use service::tls::CertificateFiles;

/// The default interval between checks of certificate files for changes.
pub const POLL: Duration = Duration::from_secs(10);

/// The default and longest use of a session ticket key, the same as in rustls's own ticketer.
pub(crate) const TICKET_KEY: Duration = Duration::from_secs(6 * 60 * 60);

/// Certificates, and how they are reloaded.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The first is for clients that name no host, or a host that no certificate is for. If several are for one name, a
    /// client gets the first whose signatures it accepts: for instance ECDSA, and RSA for older clients.
    pub certificates: Vec<CertificateFiles>,
    /// How often to check the files for changes. 10 s by default; zero means never.
    pub poll: Duration,
    /// How long a session ticket key is used. Tickets of the previous key are still accepted. In whole seconds, 6 h by
    /// default and at most, since whoever obtains a key can read what its tickets protect (RFC 5077, section 5.5).
    pub ticket_key: Duration,
}

impl Tls {
    /// One certificate, whose files are checked every 10 s, and a new session ticket key every 6 h.
    pub fn new(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self::from_iter([CertificateFiles { chain: chain.into(), key: key.into() }])
    }

    /// The same with several certificates. None if there are none.
    pub fn of(files: &[CertificateFiles]) -> Option<Self> {
        (!files.is_empty()).then(|| files.iter().cloned().collect())
    }
}

impl FromIterator<CertificateFiles> for Tls {
    fn from_iter<I: IntoIterator<Item = CertificateFiles>>(files: I) -> Self {
        Self { certificates: files.into_iter().collect(), poll: POLL, ticket_key: TICKET_KEY }
    }
}
