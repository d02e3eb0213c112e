//! An HTTP client with limits on the length of an answer and on the time that it takes. It doesn't follow redirects.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer, in bytes: a thousand times the length of the services' answers.
const MAX_BYTES: u64 = 16 << 20;
/// Where distributions keep the certificate authorities that the system trusts: NixOS and Debian, Fedora, SUSE.
const OF_SYSTEMS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// The client. Each request has its own connection.
#[derive(Clone, Debug)]
pub struct Asker(Agent);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Its text.
    pub body: String,
}

/// Why the trusted authorities can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file can't be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: pem::Error,
    },
    /// It contains no certificate.
    #[error("{}: there is no certificate in it", .0.display())]
    Empty(PathBuf),
}

impl Asker {
    /// A client that trusts the authorities in this file or, without a file, those that the system trusts.
    ///
    /// # Errors
    /// When the file can't be read or contains no certificate.
    pub fn new(cacert: Option<&Path>) -> Result<Self, TrustError> {
        Self::patient(cacert, PATIENCE)
    }

    /// The same with this timeout for an answer.
    ///
    /// # Errors
    /// When the file can't be read or contains no certificate.
    pub fn patient(cacert: Option<&Path>, patience: Duration) -> Result<Self, TrustError> {
        let config = Agent::config_builder()
            .timeout_global(Some(patience))
            .http_status_as_error(false)
            .max_redirects(0)
            // A kept connection leads to the process that accepted it, even when another has taken over from it.
            .max_idle_connections(0)
            // A proxy from the environment is for the web and not for these machines.
            .proxy(None)
            .user_agent(concat!("linerate/", env!("CARGO_PKG_VERSION")))
            .tls_config(trust(cacert)?);
        Ok(Self(config.build().into()))
    }

    /// Requests a URL.
    ///
    /// # Errors
    /// When the answer is late, too long, or not text.
    pub fn get(&self, url: &str) -> Result<Answer, String> {
        let mut answer = self.0.get(url).call().map_err(|error| error.to_string())?;
        let body = answer.body_mut().with_config().limit(MAX_BYTES).read_to_string();
        Ok(Answer { status: answer.status().as_u16(), body: body.map_err(|error| error.to_string())? })
    }
}

fn trust(cacert: Option<&Path>) -> Result<TlsConfig, TrustError> {
    let of_system = || OF_SYSTEMS.iter().map(PathBuf::from).find(|file| file.exists());
    let file = cacert.map(Path::to_owned).or_else(of_system);
    let mut authorities = Vec::new();
    if let Some(path) = file {
        let read = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        authorities = read.map_err(|source| TrustError::Read { path: path.clone(), source })?;
        if authorities.is_empty() {
            return Err(TrustError::Empty(path));
        }
    }
    let authorities = authorities.iter().map(|one| Certificate::from_der(one).to_owned());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = TlsConfig::builder().root_certs(RootCerts::from(authorities));
    Ok(config.unversioned_rustls_crypto_provider(provider).build())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn each_request_has_its_own_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let answers = move || {
            let mut clients = Vec::new();
            for _ in 0..2 {
                let (mut client, _) = listener.accept().expect("a client");
                assert_ne!(client.read(&mut [0; 1000]).expect("a request"), 0);
                client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("it reads");
                // The connection stays open.
                clients.push(client);
            }
            clients
        };
        let answering = thread::spawn(answers);
        let asker = Asker::patient(None, Duration::from_secs(20)).expect("no roots to read");
        for _ in 0..2 {
            assert_eq!(asker.get(&url), Ok(Answer { status: 200, body: "ok".to_owned() }));
        }
        answering.join().expect("two clients");
    }
}
