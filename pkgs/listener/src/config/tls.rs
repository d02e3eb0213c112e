//! Certificates, and how they are kept.

use std::path::PathBuf;
use std::time::Duration;

pub use service::tls::CertificateFiles;

/// How often the files of certificates are looked at for changes where nobody says.
pub const POLL: Duration = Duration::from_secs(10);

/// How long a key for session tickets is used where nobody says, and at most: as long as rustls' own ticketer does.
pub(crate) const TICKET_KEY: Duration = Duration::from_secs(6 * 60 * 60);

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
        Self { certificates: files.into_iter().collect(), poll: POLL, ticket_key: TICKET_KEY }
    }
}
