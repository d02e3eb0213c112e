//! The certificate authorities that a command trusts when it uses an API over TLS: those in a named file, or the
//! system's.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::CertificateError::{
    BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, UnknownIssuer,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The variable that names another file than the system's, as for OpenSSL and curl.
const VARIABLE: &str = "SSL_CERT_FILE";

/// The files of trusted authorities, in this order: Debian, Arch and NixOS; Fedora; openSUSE; Alpine.
const OF_SYSTEMS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why there are no trusted authorities.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of authorities cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// Its path.
        file: PathBuf,
        /// The reason.
        source: pem::Error,
    },
    /// The file contains no certificate.
    #[error("{} has no certificate", .0.display())]
    Empty(PathBuf),
    /// The system has no known list of authorities.
    #[error(
        "this system has no list of certificate authorities: name a file with the one to trust by --cacert"
    )]
    NoSystem,
}

/// Trusts only the authorities in `file`, or the system's.
///
/// # Errors
/// When there are no such authorities.
pub fn config(file: Option<&Path>) -> Result<TlsConfig, Error> {
    let file = file.map(Path::to_owned).or_else(of_system).ok_or(Error::NoSystem)?;
    let read = CertificateDer::pem_file_iter(&file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let authorities = read.map_err(|source| Error::Read { file: file.clone(), source })?;
    if authorities.is_empty() {
        return Err(Error::Empty(file));
    }
    let authorities = authorities.iter().map(|one| Certificate::from_der(one).to_owned());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = TlsConfig::builder().root_certs(RootCerts::from(authorities));
    Ok(config.unversioned_rustls_crypto_provider(provider).build())
}

fn of_system() -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    named.or_else(|| OF_SYSTEMS.iter().map(PathBuf::from).find(|file| fs::exists(file).unwrap_or(false)))
}

/// Explains why a server is not trusted, and what would help. `None` if the request failed for another reason.
pub fn refusal(error: &ureq::Error) -> Option<String> {
    let error = match error {
        ureq::Error::Rustls(error) => error,
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref()?,
        _ => return None,
    };
    let said = match error {
        // If the authority has the same name as a trusted one, the error is a wrong signature.
        rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature) => {
            "no authority that is trusted has signed its certificate: name a file with the one that has by --cacert"
        }
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            "its certificate is for another name: say by --api a name that it has"
        }
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => {
            "its certificate is out of date, or the clock of this machine is wrong"
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS: is its URL an http one?",
        other => return Some(other.to_string()),
    };
    Some(said.to_owned())
}
