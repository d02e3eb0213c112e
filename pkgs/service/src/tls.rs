//! What command lines say of TLS.

use std::path::{Path, PathBuf};

use crate::socket::Address;

/// Where to serve by TLS too, and as whom.
#[derive(Clone, Debug, clap::Args)]
pub struct TlsArgs {
    /// Where to serve by TLS: HTTP/1.1, HTTP/2 and HTTP/3; may be repeated.
    #[arg(long, value_name = "ADDR", value_delimiter = ',', requires = "cert", requires = "key")]
    pub tls_listen: Vec<Address>,

    /// The certificate and those that signed it, in PEM; loaded anew when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub cert: Option<PathBuf>,

    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub key: Option<PathBuf>,

    /// Speaks no HTTP/3.
    #[arg(long)]
    pub no_http3: bool,
}

impl TlsArgs {
    /// The certificate and its key.
    #[must_use]
    pub fn files(&self) -> Option<(&Path, &Path)> {
        self.cert.as_deref().zip(self.key.as_deref())
    }

    /// Whether HTTP/3 is spoken.
    #[must_use]
    pub fn http3(&self) -> bool {
        !self.no_http3 && !self.tls_listen.is_empty()
    }
}
