//! From an accepted connection to its protocol.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use rustix::net::sockopt::socket_peercred;
use rustls::ServerConnection;
use service::proxies::Source;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::sockets::{AltSvc, BoundEndpoint};
use crate::config::EndpointProtocol;
use crate::http_service::HttpService;
use crate::http1;
use crate::http2::{self, ByteStream};
use crate::lifecycle::ConnectionDeadline;
use crate::limits::Permit;
use crate::net::proxy::{self, Header};
use crate::net::{AcceptedStream, HandshakeStream, NotTls, Transport};
use crate::offload::{Offload, Offloaded};
use crate::peer::{Peer, PeerInfo, Protocol, TlsInfo};
use crate::response::Refusal;
use crate::tls::ktls;
use crate::worker_context::WorkerContext;

/// The connection preface, which an HTTP/2 client sends first (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose protocol is not yet known.
pub struct Accepted<'a> {
    pub worker: &'a Arc<WorkerContext>,
    pub deadline: &'a Arc<ConnectionDeadline>,
    pub endpoint: &'a BoundEndpoint,
    pub permit: &'a mut Permit,
    /// What reports its client.
    pub source: Source,
    pub remote: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    /// The user at the other end of a Unix socket.
    pub uid: Option<u32>,
}

impl<'a> Accepted<'a> {
    /// Serves the connection to its end.
    pub async fn serve(mut self, stream: AcceptedStream, service: impl HttpService) {
        match stream {
            AcceptedStream::Tcp(stream) => self.read_proxy_header(stream, service).await,
            AcceptedStream::Unix(socket) => match UnixStream::from_std(socket.into()) {
                Ok(stream) => {
                    self.uid = socket_peercred(&stream).ok().map(|peer| peer.uid.as_raw());
                    self.read_proxy_header(stream, service).await;
                }
                Err(error) => tracing::warn!(%error, "a connection cannot be waited for"),
            },
        }
    }

    /// Reads the client's address from a proxy's header.
    async fn read_proxy_header(mut self, mut stream: impl Transport + 'static, service: impl HttpService) {
        if self.source == Source::ProxyHeader {
            match self.deadline.timeout(&self.worker.registry, proxy::read(&mut stream)).await {
                Some(Ok(Header::Local)) => {}
                Some(Ok(Header::Proxied { remote, local })) => {
                    (self.remote, self.local) = (Some(remote), Some(local));
                }
                Some(Err(_)) | None => return self.worker.counts().proxy_refused.increment(),
            }
            if let Some(remote) = self.remote
                && let Err(why) = self.permit.charge(remote.ip())
            {
                return self.worker.counts().refused(why);
            }
        }
        self.negotiate(stream, service).await;
    }

    /// Does the TLS handshake, if any, and finds out the protocol above it.
    async fn negotiate(self, mut stream: impl Transport + 'static, service: impl HttpService) {
        match (self.endpoint.protocol, &self.worker.tls) {
            (EndpointProtocol::Tls, Some(tls)) => {
                // Large state is boxed, so that a connection without TLS has no space for it.
                let stream = HandshakeStream::tls(stream, tls.offloaded.any());
                let handshake = Box::pin(TlsAcceptor::from(tls.tcp.clone()).accept(stream).into_fallible());
                let stream = match self.deadline.timeout(&self.worker.registry, handshake).await {
                    Some(Ok(stream)) => stream,
                    failed => {
                        self.worker.counts().handshake_failures.increment();
                        if let Some(Err((error, stream))) = failed
                            && NotTls::is(&error)
                        {
                            let peer = self.peer(Protocol::Http1, None);
                            let away = http1::refuse_connection(
                                self.worker,
                                self.deadline,
                                &peer,
                                stream.into_inner(),
                                Refusal::NotTls,
                            );
                            Box::pin(away).await;
                        }
                        return;
                    }
                };
                let mut stream = Box::new(stream);
                let connection = stream.get_ref().1;
                let http2 = connection.alpn_protocol() == Some(b"h2");
                let info = describe(connection);
                if !http2 && let Some(offload) = self.offload(&stream) {
                    return self.hand_to_offload(*stream, info, offload);
                }
                stream.get_mut().0.end_handshake();
                if http2 {
                    // What is gathered is encrypted in one call.
                    stream.get_mut().1.set_buffer_limit(Some(http2::GATHERED_BYTES));
                    Box::pin(self.http2(stream, Some(info), service)).await
                } else {
                    Box::pin(self.http1(stream, &[], Some(info), service)).await
                }
            }
            (EndpointProtocol::Http1AndH2c, _) => {
                let mut received = BytesMut::with_capacity(PREFACE.len());
                let sniffed =
                    self.deadline.timeout(&self.worker.registry, sniff(&mut stream, &mut received)).await;
                let http2 = match sniffed {
                    Some(Ok(http2)) => http2,
                    // An incomplete preface is also an incomplete head, which times out as such.
                    None if !received.is_empty() => {
                        self.worker.counts().timed_out.increment();
                        let peer = self.peer(Protocol::Http1, None);
                        let away = http1::refuse_connection(
                            self.worker,
                            self.deadline,
                            &peer,
                            stream,
                            Refusal::Slow,
                        );
                        return Box::pin(away).await;
                    }
                    _ => return,
                };
                if http2 {
                    let stream = Box::new(HandshakeStream::with_prefix(received, stream));
                    Box::pin(self.http2(stream, None, service)).await;
                } else {
                    self.http1(stream, &received, None, service).await;
                }
            }
            _ => self.http1(stream, &[], None, service).await,
        }
    }

    /// The code that takes over the connection, if the kernel can encrypt it from here on.
    fn offload<S: Transport>(&self, stream: &TlsStream<HandshakeStream<S>>) -> Option<&'a dyn Offload> {
        let worker: &'a WorkerContext = self.worker;
        let offload = worker.config.offload.as_deref()?;
        let (records, connection) = stream.get_ref();
        let suites = self.worker.tls.as_ref()?.offloaded;
        let whole = records.is_between_records() && !connection.wants_write() && !self.deadline.is_draining();
        let ours = whole && suites.has(connection);
        // If this fails, the socket is unchanged.
        (ours && ktls::attach(records.get_ref().tcp()?).is_ok()).then_some(offload)
    }

    /// Makes the kernel encrypt the connection, and other code serve it.
    fn hand_to_offload(
        self,
        stream: TlsStream<HandshakeStream<impl Transport + 'static>>,
        info: TlsInfo,
        offload: &dyn Offload,
    ) {
        let (records, mut connection) = stream.into_inner();
        let give = || {
            // A request that came with the end of the handshake is already decrypted.
            let state = connection.process_new_packets().map_err(io::Error::other)?;
            let mut received = vec![0; state.plaintext_bytes_to_read()];
            connection.reader().read_exact(&mut received)?;
            let secrets = connection.dangerous_extract_secrets().map_err(io::Error::other)?;
            let stream = records.into_inner().into_tcp()?;
            ktls::give_keys(&stream, &secrets)?;
            Ok::<_, io::Error>((stream, received))
        };
        match give() {
            Ok((stream, received)) => offload.take(Offloaded {
                socket: stream.into(),
                received,
                peer: self.peer(Protocol::Http1, Some(info)),
                address: self.permit.take_address(),
                alt_svc: self
                    .endpoint
                    .alt_svc
                    .as_ref()
                    .map_or_else(Box::default, |alt_svc| alt_svc.line.clone()),
            }),
            Err(error) => {
                tracing::warn!(%error, "the kernel does not take the keys of a connection");
                self.worker.counts().handshake_failures.increment();
            }
        }
    }

    /// Serves HTTP/1.1 to its end; `received` was already read.
    pub fn http1(
        self,
        stream: impl Transport,
        received: &[u8],
        tls: Option<TlsInfo>,
        service: impl HttpService,
    ) -> impl Future<Output = ()> {
        let more = self.alt_svc(&tls).map_or(&b""[..], |alt_svc| &alt_svc.line);
        let peer = self.peer(Protocol::Http1, tls);
        http1::serve(self.worker, self.deadline, stream, received, peer, more, service)
    }

    async fn http2(self, stream: Box<dyn ByteStream>, tls: Option<TlsInfo>, service: impl HttpService) {
        let alt_svc = self.alt_svc(&tls);
        let (value, more) =
            alt_svc.map_or((None, &b""[..]), |known| (Some(known.value.clone()), &known.line));
        let peer = self.peer(Protocol::Http2, tls);
        http2::serve(self.worker, self.deadline, stream, peer, value, more, service).await;
    }

    /// The announcement of HTTP/3, for clients over TLS only.
    fn alt_svc(&self, tls: &Option<TlsInfo>) -> Option<&'a AltSvc> {
        self.endpoint.alt_svc.as_ref().filter(|_| tls.is_some())
    }

    fn peer(&self, protocol: Protocol, tls: Option<TlsInfo>) -> Peer {
        Peer::new(PeerInfo {
            remote: self.remote,
            local: self.local,
            uid: self.uid,
            protocol,
            tls,
            address_rate: self.permit.address_rate(),
            proxies: (self.source == Source::Fields).then(|| self.worker.config.proxies.clone()),
        })
    }
}

/// Reads until it is clear whether the client speaks HTTP/2. Returns whether it does. `received` has room for the
/// preface.
async fn sniff(stream: &mut (impl AsyncRead + Unpin), received: &mut BytesMut) -> io::Result<bool> {
    while PREFACE.starts_with(received) {
        if received.len() == PREFACE.len() {
            return Ok(true);
        }
        // Never reads more than the preface, for which there is just enough room.
        if stream.read_buf(received).await? == 0 {
            break;
        }
    }
    Ok(false)
}

fn describe(connection: &ServerConnection) -> TlsInfo {
    TlsInfo {
        version: connection.protocol_version(),
        cipher: connection.negotiated_cipher_suite().map(|suite| suite.suite()),
        server_name: connection.server_name().map(Into::into),
    }
}
