//! TLS: who does not speak it, and certificates that change.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use listener::{Config, Endpoint, Tls};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, StreamOwned};
use service::problem::Problem;

use crate::server::{PATIENCE, Server};

/// A certificate that signs itself, in files.
pub struct Certificate {
    directory: tempfile::TempDir,
    pub der: CertificateDer<'static>,
}

impl Certificate {
    pub fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut certificate = Self { directory, der: CertificateDer::from(Vec::new()) };
        certificate.renew(name);
        certificate
    }

    /// Another one, in the same files.
    pub fn renew(&mut self, name: &str) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        std::fs::write(self.file("chain.pem"), made.cert.pem()).expect("a writable directory");
        std::fs::write(self.file("key.pem"), made.signing_key.serialize_pem()).expect("a writable directory");
        self.der = made.cert.der().clone();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn config(&self) -> Tls {
        Tls::new(self.file("chain.pem"), self.file("key.pem"))
    }

    /// A client that trusts this one.
    pub fn connect(&self, address: SocketAddr) -> TlsClient {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.der.clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        TlsClient(StreamOwned::new(connection, stream))
    }
}

pub struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    pub fn send(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes());
    }

    /// All until the server closes the connection, which it has to say.
    pub fn text(&mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).expect("an end");
        text
    }
}

const CLOSING: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn who_speaks_no_tls_is_told() {
    let certificate = Certificate::new("localhost");
    let config = Config { tls: Some(certificate.config()), ..Config::default() };
    let server = Server::start(Endpoint::tls, config);
    for request in [CLOSING, "P", "OPTIONS * HTTP/1.1\r\n"] {
        let answer = server.connect().send(request).text();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("connection: close"), "{head}");
        assert!(head.contains("application/problem+json"), "{head}");
        let problem: Problem = serde_json::from_str(body).expect("a problem");
        assert!(problem.detail.contains("https://"), "{problem}");
    }
    // What is no HTTP is answered in the words of TLS: an alert (RFC 8446, section 6).
    assert_eq!(server.connect().send([0; 64]).rest().first(), Some(&21));
    let mut client = certificate.connect(server.address);
    client.send(CLOSING);
    assert!(client.text().ends_with("Hello, World!"));
}

#[test]
fn certificates_are_replaced_when_their_files_change() {
    let mut certificate = Certificate::new("localhost");
    let tls = Tls { poll: Duration::from_millis(20), ..certificate.config() };
    let server = Server::start(Endpoint::tls, Config { tls: Some(tls), ..Config::default() });
    let shown = |certificate: &Certificate| {
        let mut client = certificate.connect(server.address);
        client.send(CLOSING);
        let mut text = String::new();
        let read = client.0.read_to_string(&mut text);
        read.is_ok() && text.ends_with("Hello, World!")
    };
    assert!(shown(&certificate));
    for _ in 0..3 {
        let before = certificate.der.clone();
        certificate.renew("localhost");
        assert_ne!(certificate.der, before);
        let deadline = std::time::Instant::now() + PATIENCE;
        while !shown(&certificate) {
            assert!(std::time::Instant::now() < deadline, "it shows the one before");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
