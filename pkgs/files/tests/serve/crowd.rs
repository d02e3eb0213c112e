//! TLS clients that request a file and read none of it.

use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Little room for what isn't read.
const RECEIVE_BYTES: usize = 4096;

/// Connects up to `count` clients; stops at the first that waits longer than `patience` for its handshake. They
/// disconnect when dropped.
pub fn gather(
    address: SocketAddr,
    certificate: &Path,
    path: &str,
    count: usize,
    patience: Duration,
) -> Vec<TcpStream> {
    let config = Arc::new(config(certificate));
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let one = || -> io::Result<TcpStream> {
        let stream = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_recv_buffer_size(&stream, RECEIVE_BYTES)?;
        connect(&stream, &address)?;
        let mut stream = TcpStream::from(stream);
        stream.set_read_timeout(Some(patience))?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(Arc::clone(&config), name).map_err(io::Error::other)?;
        session.writer().write_all(request.as_bytes())?;
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut stream)?;
        }
        // Nothing more is read, so nothing else is needed from it.
        Ok(stream)
    };
    (0..count).map_while(|_| one().ok()).collect()
}

/// The client's side of one connection, before its handshake.
pub fn session(certificate: &Path) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::new(config(certificate)), name).expect("a session")
}

/// With the server's certificate, and sessions that are resumed, since thousands of handshakes take a while.
pub fn config(certificate: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let certificate = fs::read(certificate).expect("a certificate");
    roots.add(CertificateDer::from_pem_slice(&certificate).expect("PEM")).expect("a certificate");
    let cheap =
        CryptoProvider { kx_groups: vec![aws_lc_rs::kx_group::X25519], ..aws_lc_rs::default_provider() };
    ClientConfig::builder_with_provider(Arc::new(cheap))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
