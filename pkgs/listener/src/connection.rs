//! From an accepted connection to the protocol that is spoken on it.

use std::net::SocketAddr;

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::accept::Stream;
use crate::config::{Endpoint, Speaks};
use crate::http1;
use crate::peer::{Peer, PeerInfo, Protocol, TlsInfo};
use crate::service_trait::HttpService;
use crate::worker::Worker;

/// Serves a connection to its end.
pub async fn serve(
    worker: &Worker,
    endpoint: &Endpoint,
    stream: Stream,
    remote: Option<SocketAddr>,
    service: impl HttpService,
) {
    match stream {
        Stream::Tcp(stream) => {
            let local = stream.local_addr().ok();
            secure(worker, endpoint, stream, remote, local, service).await;
        }
        Stream::Unix(stream) => secure(worker, endpoint, stream, remote, None, service).await,
    }
}

async fn secure(
    worker: &Worker,
    endpoint: &Endpoint,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    remote: Option<SocketAddr>,
    local: Option<SocketAddr>,
    service: impl HttpService,
) {
    let peer = |protocol, tls| Peer::new(PeerInfo { remote, local, protocol, tls });
    match (endpoint.speaks, &worker.tls) {
        (Speaks::Tls, Some(tls)) => {
            let handshake = TlsAcceptor::from(tls.tcp.clone()).accept(stream);
            let time = worker.config.limits.handshake_time;
            let Ok(Ok(stream)) = tokio::time::timeout(time, handshake).await else {
                worker.counts().handshake_failures.increment();
                return;
            };
            let info = describe(stream.get_ref().1);
            http1::serve(worker, stream, peer(Protocol::Http1, Some(info)), service).await;
        }
        _ => http1::serve(worker, stream, peer(Protocol::Http1, None), service).await,
    }
}

fn describe(connection: &ServerConnection) -> TlsInfo {
    TlsInfo {
        version: connection.protocol_version(),
        cipher: connection.negotiated_cipher_suite().map(|suite| suite.suite()),
        server_name: connection.server_name().map(Into::into),
    }
}
