//! TLS clients.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::conversation::Socket;

/// What clients know about a server, and the protocol they speak.
#[derive(Clone, Debug)]
pub struct Secure(Arc<ClientConfig>);

/// A TLS connection.
pub type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Secure {
    /// Clients for a server with this certificate, with `protocol`, such as `h2`.
    ///
    /// # Panics
    /// When there is no certificate.
    #[must_use]
    pub fn new(certificate: &Path, protocol: &str) -> Self {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
        roots.add(certificate).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Self(Arc::new(config))
    }

    /// Connects and completes the handshake.
    ///
    /// # Errors
    /// When the server doesn't complete it.
    pub fn connect(&self, address: SocketAddr) -> io::Result<Stream> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        self.shake(stream)
    }

    /// Completes the handshake on an existing connection.
    ///
    /// # Errors
    /// When the server doesn't complete it.
    pub fn shake(&self, mut stream: TcpStream) -> io::Result<Stream> {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        stream.set_read_timeout(Some(crate::program::PATIENCE))?;
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(session, stream))
    }
}

impl Socket for Stream {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}

/// Sends TLS's close_notify: nothing more will come.
///
/// # Errors
/// When the server has closed the connection.
pub fn say_goodbye(stream: &mut Stream) -> io::Result<()> {
    stream.conn.send_close_notify();
    stream.flush()
}

/// Reads received bytes, even if nothing can be sent any more: [`StreamOwned`] sends first, and then fails.
fn hear(stream: &mut Stream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.conn.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
        stream.conn.read_tls(&mut stream.sock)?;
        stream.conn.process_new_packets().map_err(io::Error::other)?;
    }
}

/// A connection with or without TLS.
#[derive(Debug)]
pub enum Either {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Secure(Box<Stream>),
}

impl Read for Either {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Secure(stream) => hear(stream, buffer),
        }
    }
}

impl Write for Either {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Secure(stream) => stream.flush(),
        }
    }
}

impl Socket for Either {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Secure(stream) => stream.tcp(),
        }
    }
}
