//! A client for each protocol that understands how a server announces the end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientProtocol {
    Http1,
    Http1Tls,
    H2c,
    Http2Tls,
    Http3,
}

impl ClientProtocol {
    pub const ALL: [Self; 5] = [Self::Http1, Self::Http1Tls, Self::H2c, Self::Http2Tls, Self::Http3];
}

/// Why there was no answer.
#[derive(Debug)]
pub enum Failure {
    /// The server has said that it didn't look at the request, or the request was never sent.
    Unprocessed,
    /// Nobody knows what happened to it.
    Lost(String),
}

/// A server's addresses, and the trusted certificates.
#[derive(Clone)]
pub struct Target {
    clear: SocketAddr,
    secure: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
}

/// A connection.
pub struct Connection {
    sender: Sender,
    /// The certificate that the server presented.
    pub certificate: Option<CertificateDer<'static>>,
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
    Http3 {
        sender: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
        // Its socket closes with it.
        _endpoint: quinn::Endpoint,
    },
}

impl Target {
    /// A server that listens at `clear` without TLS and at `secure` with TLS. Its past and future certificates are
    /// `trusted`.
    pub fn new(clear: SocketAddr, secure: SocketAddr, trusted: &[CertificateDer<'static>]) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { clear, secure, tls: Arc::new(tls) }
    }

    fn offering(&self, protocol: &str) -> rustls::ClientConfig {
        let mut tls = rustls::ClientConfig::clone(&self.tls);
        tls.alpn_protocols = vec![protocol.into()];
        // A certificate is only presented in a full handshake.
        tls.resumption = rustls::client::Resumption::disabled();
        tls
    }

    /// Connects.
    pub async fn connect(&self, protocol: ClientProtocol) -> Result<Connection, String> {
        match protocol {
            ClientProtocol::Http1 => http1(self.tcp().await?, None).await,
            ClientProtocol::H2c => http2(self.tcp().await?, None).await,
            ClientProtocol::Http1Tls => {
                let (stream, certificate) = self.tls("http/1.1").await?;
                http1(stream, certificate).await
            }
            ClientProtocol::Http2Tls => {
                let (stream, certificate) = self.tls("h2").await?;
                http2(stream, certificate).await
            }
            ClientProtocol::Http3 => self.http3().await,
        }
    }

    async fn tcp(&self) -> Result<TcpStream, String> {
        TcpStream::connect(self.clear).await.map_err(told)
    }

    async fn tls(
        &self,
        protocol: &str,
    ) -> Result<(tokio_rustls::client::TlsStream<TcpStream>, Option<CertificateDer<'static>>), String> {
        let stream = TcpStream::connect(self.secure).await.map_err(told)?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(self.offering(protocol)));
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = connector.connect(name, stream).await.map_err(told)?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first().cloned());
        Ok((stream, certificate))
    }

    /// Connects with QUIC, and says nothing yet.
    pub async fn quic(&self) -> Result<(quinn::Endpoint, quinn::Connection), String> {
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).map_err(told)?;
        let tls = QuicClientConfig::try_from(self.offering("h3")).expect("TLS 1.3");
        let config = quinn::ClientConfig::new(Arc::new(tls));
        let connecting = endpoint.connect_with(config, self.secure, "localhost").map_err(told)?;
        let connection = connecting.await.map_err(told)?;
        Ok((endpoint, connection))
    }

    async fn http3(&self) -> Result<Connection, String> {
        let (endpoint, connection) = self.quic().await?;
        let shown =
            connection.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'_>>>().ok());
        let certificate = shown.and_then(|chain| chain.first().cloned());
        let (mut driver, sender) =
            h3::client::new(h3_quinn::Connection::new(connection)).await.map_err(told)?;
        tokio::spawn(async move { std::future::poll_fn(|context| driver.poll_close(context)).await });
        Ok(Connection { sender: Sender::Http3 { sender, _endpoint: endpoint }, certificate })
    }
}

async fn http1(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    certificate: Option<CertificateDer<'static>>,
) -> Result<Connection, String> {
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    tokio::spawn(driver);
    Ok(Connection { sender: Sender::Http1(sender), certificate })
}

async fn http2(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    certificate: Option<CertificateDer<'static>>,
) -> Result<Connection, String> {
    let io = TokioIo::new(stream);
    let (sender, driver) = http2::handshake(TokioExecutor::new(), io).await.map_err(told)?;
    tokio::spawn(driver);
    Ok(Connection { sender: Sender::Http2(sender), certificate })
}

impl Connection {
    /// Requests `path`, and nothing else before the answer has arrived.
    pub async fn ask(&mut self, path: &str) -> Result<(StatusCode, Bytes), Failure> {
        let request = |authority: &str| {
            Request::get(format!("{authority}{path}"))
                .header("host", "localhost")
                .body(Empty::new())
                .expect("a request")
        };
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await.map_err(|_| Failure::Unprocessed)?;
                let response = sender.send_request(request("")).await.map_err(judge)?;
                let status = response.status();
                Ok((status, response.collect().await.map_err(lost)?.to_bytes()))
            }
            Sender::Http2(sender) => {
                sender.ready().await.map_err(|_| Failure::Unprocessed)?;
                let response = sender.send_request(request("https://localhost")).await.map_err(judge)?;
                let status = response.status();
                Ok((status, response.collect().await.map_err(lost)?.to_bytes()))
            }
            Sender::Http3 { sender, .. } => {
                let request = request("https://localhost").map(|_| ());
                let mut stream = sender.send_request(request).await.map_err(|_| Failure::Unprocessed)?;
                match stream.finish().await {
                    // The answer is on its way, and hasn't waited for the end of the request (RFC 9114, section 4.1).
                    Err(StreamError::RemoteTerminate { code: Code::H3_NO_ERROR, .. }) => {}
                    finished => finished.map_err(refused)?,
                }
                let response = stream.recv_response().await.map_err(refused)?;
                let mut body = Vec::new();
                while let Some(mut data) = stream.recv_data().await.map_err(lost)? {
                    body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
                }
                Ok((response.status(), body.into()))
            }
        }
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn lost(error: impl std::fmt::Debug) -> Failure {
    Failure::Lost(format!("{error:?}"))
}

/// What a hyper error says about the request.
fn judge(error: hyper::Error) -> Failure {
    let of_h2 = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<h2::Error>());
    let unprocessed = of_h2.is_some_and(|h2| {
        // RFC 9113, sections 6.8 and 8.7: beyond the last stream of a GOAWAY, or refused.
        let goodbye = h2.is_go_away() && h2.is_remote() && h2.reason() == Some(h2::Reason::NO_ERROR);
        goodbye || h2.reason() == Some(h2::Reason::REFUSED_STREAM)
    });
    // Canceled means that it was never sent.
    if unprocessed || error.is_canceled() { Failure::Unprocessed } else { lost(error) }
}

/// What an h3 error says about the request.
fn refused(error: StreamError) -> Failure {
    match error {
        StreamError::RemoteTerminate { code: Code::H3_REQUEST_REJECTED, .. } => Failure::Unprocessed,
        error => lost(error),
    }
}
