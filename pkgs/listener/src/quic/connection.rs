//! The requests of one connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use h3::quic::SendStream as _;
use h3::server;
use quinn::crypto::rustls::HandshakeData;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::request::{self, Context};
use super::transport::{self, varint};
use crate::peer::{Peer, PeerInfo, Protocol, TlsInfo};
use crate::service_trait::HttpService;
use crate::worker::Worker;

/// Requests allowed for by the first of the two notices of a connection's end: as many as there can be.
const ANY: usize = usize::MAX;
/// How many round trips pass between the two notices, and before a connection without requests is closed: the
/// client may have sent something, and what it was sent may have to be sent again.
const ROUND_TRIPS: u32 = 3;
/// The least of that time, for acknowledgements may wait 25 ms (RFC 9000, section 18.2) and clocks are coarse.
const SETTLE: Duration = Duration::from_millis(100);

/// Serves a connection to its end.
pub(super) async fn serve(
    worker: &Arc<Worker>,
    local: SocketAddr,
    quic: quinn::Connection,
    service: impl HttpService,
) {
    let _open = worker.metrics.open(worker.index, Protocol::Http3);
    let limits = &worker.config.limits;
    // Twice what a decoded head may have: h3 can then still answer a request whose head is somewhat too long.
    let transport = transport::Connection::new(quic.clone(), 2 * limits.head_bytes as u64);
    let mut builder = server::builder();
    let building =
        builder.max_field_section_size(limits.head_bytes as u64).send_grease(false).build(transport);
    // It waits for the client's leave to open streams.
    let Ok(Ok(h3)) = timeout(limits.handshake_time, building).await else {
        return worker.counts().handshake_failures.increment();
    };
    let context = Arc::new(Context { worker: Arc::clone(worker), peer: peer(&quic, local) });
    Connection { h3, quic, context, service, requests: JoinSet::new(), begun: false }.run().await;
}

fn peer(quic: &quinn::Connection, local: SocketAddr) -> Peer {
    let handshake = quic.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    Peer::new(PeerInfo {
        remote: Some(quic.remote_address()),
        // The socket may be bound to every address there is.
        local: Some((quic.local_ip().unwrap_or(local.ip()), local.port()).into()),
        protocol: Protocol::Http3,
        tls: handshake.map(|handshake| TlsInfo {
            version: Some(rustls::ProtocolVersion::TLSv1_3),
            cipher: None,
            server_name: handshake.server_name.map(Into::into),
        }),
    })
}

type H3 = server::Connection<transport::Connection, Bytes>;
type Resolver = server::RequestResolver<transport::Connection, Bytes>;

struct Connection<S> {
    h3: H3,
    quic: quinn::Connection,
    context: Arc<Context>,
    service: S,
    /// Those in flight; they end with the connection.
    requests: JoinSet<()>,
    /// Whether there has been one.
    begun: bool,
}

/// What happens on a connection.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and most are the largest")]
enum Event {
    /// A request begins.
    Request(Resolver),
    /// One has ended.
    Answered,
    /// There was no request for too long.
    Idle,
    /// No more requests are to begin.
    Drain,
    /// The client wants no more and has all its answers.
    Done,
    /// The connection is lost.
    Lost,
}

impl<S: HttpService> Connection<S> {
    async fn run(mut self) {
        let worker = Arc::clone(&self.context.worker);
        let mut drain = worker.drain.clone();
        loop {
            let event = tokio::select! {
                event = self.next() => event,
                _ = drain.draining() => Event::Drain,
            };
            match event {
                Event::Request(resolver) => self.begin(resolver),
                Event::Answered => {}
                Event::Idle => {
                    worker.counts().timed_out.increment();
                    break;
                }
                Event::Drain => break,
                Event::Done => {
                    // What was sent last may have to be sent again.
                    let _ = timeout(self.settling(), self.quic.closed()).await;
                    return;
                }
                Event::Lost => return,
            }
        }
        tokio::select! {
            () = self.wind_up() => {}
            () = drain.cut() => {}
        }
        self.quic.close(varint(Code::H3_NO_ERROR.value()), b"");
    }

    /// What happens next.
    async fn next(&mut self) -> Event {
        let idle = self.context.worker.config.limits.idle;
        tokio::select! {
            accepted = self.h3.accept() => match accepted {
                Ok(Some(resolver)) => Event::Request(resolver),
                Ok(None) => Event::Done,
                Err(_) => Event::Lost,
            },
            Some(_) = self.requests.join_next() => Event::Answered,
            () = tokio::time::sleep(idle), if self.requests.is_empty() => Event::Idle,
        }
    }

    fn begin(&mut self, resolver: Resolver) {
        self.begun = true;
        let context = Arc::clone(&self.context);
        self.requests.spawn(request::serve(context, resolver, self.service.clone()));
    }

    /// Ends the connection in order (RFC 9114, section 5.2): a notice that leaves room for what the client has
    /// sent already, one that names the first request that will not be served, then the rest of the answers.
    async fn wind_up(&mut self) {
        if self.h3.shutdown(ANY).await.is_err() {
            return;
        }
        // Of a connection without a request even the first notice names the first there could be.
        if self.begun {
            if !self.settle(true).await {
                return;
            }
            if self.h3.shutdown(1).await.is_err() {
                return;
            }
        }
        while !self.requests.is_empty() {
            match self.next().await {
                // h3 would still serve the one it has named.
                Event::Request(resolver) => reject(resolver),
                Event::Answered | Event::Idle | Event::Drain => {}
                Event::Done | Event::Lost => break,
            }
        }
        self.settle(false).await;
    }

    /// Gives the client time to take in what it was told; false if the connection has ended meanwhile.
    async fn settle(&mut self, serving: bool) -> bool {
        let until = Instant::now() + self.settling();
        loop {
            let event = tokio::select! {
                event = self.next() => event,
                () = tokio::time::sleep_until(until) => return true,
            };
            match event {
                Event::Request(resolver) if serving => self.begin(resolver),
                Event::Request(resolver) => reject(resolver),
                Event::Answered | Event::Idle | Event::Drain => {}
                Event::Done | Event::Lost => return false,
            }
        }
    }

    fn settling(&self) -> Duration {
        SETTLE + ROUND_TRIPS * self.quic.rtt()
    }
}

/// Tells the client that a request was not looked at, so that it may be sent again elsewhere.
fn reject(mut resolver: Resolver) {
    resolver.frame_stream.reset(Code::H3_REQUEST_REJECTED.value());
}
