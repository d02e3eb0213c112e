//! TLS: clients that don't speak it, certificates that change, and sessions that are resumed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use listener::{Config, Endpoint, Listener, Tls};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, NamedGroup, StreamOwned};
use service::problem::Problem;

use crate::server::{PATIENCE, Server};

/// A self-signed certificate, in files.
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
        let made = testkit::certificate(&[name]);
        made.write(self.file("chain.pem"), self.file("key.pem"));
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
        let config = ClientConfig::builder_with_provider(provider)
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

    /// Everything until the server closes the connection, which it has to announce.
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
    // A response to what isn't HTTP uses TLS's words: an alert (RFC 8446, section 6).
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

/// Stores a session under any name, and resumes it under every other, as no honest client does.
#[derive(Debug)]
struct Nameless(ClientSessionMemoryCache);

fn nobody() -> ServerName<'static> {
    "nobody.example".try_into().expect("a name")
}

impl ClientSessionStore for Nameless {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(nobody(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&nobody())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(nobody(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&nobody())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&nobody());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(nobody(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&nobody())
    }
}

#[test]
fn a_session_with_one_name_is_not_taken_up_again_with_another() {
    let hosts = ["a.example", "b.example"].map(|name| (name, Certificate::new(name)));
    let tls = hosts.iter().flat_map(|(_, certificate)| certificate.config().certificates).collect();
    let server = Server::start(Endpoint::tls, Config { tls: Some(tls), ..Config::default() });
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(hosts.iter().map(|(_, certificate)| certificate.der.clone()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::store(Arc::new(Nameless(ClientSessionMemoryCache::new(32))));
        let config = Arc::new(config);
        for (host, resumed) in [(0, false), (0, true), (1, false), (1, true), (0, false)] {
            let (name, certificate) = &hosts[host];
            let connection = ClientConnection::new(Arc::clone(&config), (*name).try_into().expect("a name"))
                .expect("a client");
            let stream = TcpStream::connect(server.address).expect("connects");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut client = TlsClient(StreamOwned::new(connection, stream));
            client.send(CLOSING);
            assert!(client.text().ends_with("Hello, World!"));
            let kind = client.0.conn.handshake_kind();
            assert_eq!(kind == Some(HandshakeKind::Resumed), resumed, "{version:?} {name}: {kind:?}");
            // In a resumed session, the certificate is the one from the first time.
            let shown = client.0.conn.peer_certificates().and_then(|chain| chain.first());
            assert_eq!(shown, Some(&certificate.der), "{version:?} {name}");
        }
    }
}

#[test]
fn a_key_of_another_certificate_is_refused_by_the_names_of_both() {
    let (good, bad, other) =
        (Certificate::new("a.example"), Certificate::new("b.example"), Certificate::new("c.example"));
    let (chain, key) = (bad.file("chain.pem"), other.file("key.pem"));
    let mut tls = good.config();
    tls.certificates.extend(Tls::new(&chain, &key).certificates);
    let endpoints = vec![Endpoint::tls("127.0.0.1:0".parse().expect("an address"))];
    let refused = Listener::new(Config { endpoints, tls: Some(tls), ..Config::default() });
    let said = refused.expect_err("a key that does not fit").to_string();
    assert!([chain, key].iter().all(|file| said.contains(&*file.to_string_lossy())), "{said}");
}
