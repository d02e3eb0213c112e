//! The requests of one connection.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task;
use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use h3::quic::SendStream as _;
use h3::server;
use quinn::crypto::rustls::HandshakeData;
use service::address_limits::AddressRate;
use service::proxies::Source;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::context::Context;
use super::error_code::varint;
use super::fast_path::{Progress, StreamFastPath, Unsent};
use super::request;
use super::send_window::send_window;
use super::stall_detector::{StallDetector, StallWatch};
use super::transport;
use crate::http_service::HttpService;
use crate::lifecycle::drain::Drain;
use crate::peer::{Peer, PeerInfo, Protocol, TlsInfo};
use crate::worker_context::WorkerContext;

/// Requests allowed for by the first of the two notices of a connection's end: as many as there can be.
const ANY: usize = usize::MAX;
/// How many round trips there are at least between the two notices, and before a connection is closed: the client may have
/// sent something, and what it was sent may have to be sent again.
const ROUND_TRIPS: u32 = 3;
/// The least of that time, for acknowledgements may wait 25 ms (RFC 9000, section 18.2) and clocks are coarse.
const SETTLE: Duration = Duration::from_millis(100);

/// How often a connection that is idle, or takes nothing, is looked at before it is closed: no request has to move a timer,
/// and the time is exceeded by a part of this at most.
const LOOKS: u32 = 4;

/// Serves a connection to its end.
pub(crate) async fn serve(
    worker: &Arc<WorkerContext>,
    local: SocketAddr,
    quic: quinn::Connection,
    address_rate: Option<AddressRate>,
    service: impl HttpService,
) {
    let _open = worker.metrics.open(worker.index, Protocol::Http3);
    // As the handshake has it: later the client's own load is in it.
    let window = send_window(quic.rtt());
    quic.set_send_window(window);
    let limits = &worker.config.limits;
    let stall = StallDetector::default();
    stall.set_window(window);
    let context = Arc::new(Context {
        worker: Arc::clone(worker),
        peer: peer(worker, &quic, local, address_rate),
        stall,
    });
    let (fast, progress, unsent) = StreamFastPath::new(service.clone(), Arc::clone(&context));
    // Twice what a decoded head may have: h3 can then still answer a request whose head is somewhat too long.
    let transport = transport::Connection::new(quic.clone(), Some(fast), 2 * limits.head_bytes as u64);
    let mut builder = server::builder();
    let building =
        builder.max_field_section_size(limits.head_bytes as u64).send_grease(false).build(transport);
    // It waits for the client's leave to open streams.
    let Ok(Ok(h3)) = timeout(limits.handshake_time, building).await else {
        return worker.counts().handshake_failures.increment();
    };
    let remote = quic.remote_address();
    let requests = JoinSet::new();
    Connection { h3, quic, remote, context, service, progress, unsent, requests, begun: false }.run().await;
}

fn peer(
    worker: &WorkerContext,
    quic: &quinn::Connection,
    local: SocketAddr,
    address_rate: Option<AddressRate>,
) -> Peer {
    let proxies = &worker.config.proxies;
    let remote = quic.remote_address();
    let handshake = quic.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    Peer::new(PeerInfo {
        remote: Some(remote),
        // The socket may be bound to every address there is.
        local: Some((quic.local_ip().unwrap_or(local.ip()), local.port()).into()),
        uid: None,
        protocol: Protocol::Http3,
        tls: handshake.map(|handshake| TlsInfo {
            version: Some(rustls::ProtocolVersion::TLSv1_3),
            cipher: None,
            server_name: handshake.server_name.map(Into::into),
        }),
        address_rate,
        proxies: (proxies.source(Some(remote.ip())) == Source::Fields).then(|| proxies.clone()),
    })
}

type H3<S> = server::Connection<transport::Connection<S>, Bytes>;
type Resolver<S> = server::RequestResolver<transport::Connection<S>, Bytes>;

struct Connection<S: HttpService> {
    h3: H3<S>,
    quic: quinn::Connection,
    /// Where the client was when it was last looked at: it may move (RFC 9000, section 9).
    remote: SocketAddr,
    context: Arc<Context>,
    service: S,
    /// What the fast path has seen.
    progress: Arc<Progress>,
    /// Its answers that wait for room.
    unsent: mpsc::UnboundedReceiver<Unsent>,
    /// Those in flight; they end with the connection.
    requests: JoinSet<()>,
    /// Whether there has been one.
    begun: bool,
}

/// Why a connection gets no more requests.
enum End {
    /// There was none for too long.
    Idle,
    /// The client takes no answer.
    Stalled,
    /// No more are to begin.
    Drain,
    /// The client wants no more and has all its answers.
    Done,
    /// The connection is lost.
    Lost,
}

/// What happens on a connection that ends.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Event<S: HttpService> {
    /// A request begins.
    Request(Resolver<S>),
    /// One has ended.
    Answered,
    /// The connection has ended.
    Ended,
}

impl<S: HttpService> Connection<S> {
    async fn run(mut self) {
        let worker = Arc::clone(&self.context.worker);
        let draining = match self.requests_until(&mut worker.drain.clone()).await {
            End::Lost => return,
            End::Stalled => {
                worker.counts().timed_out.increment();
                return self.quic.close(
                    varint(Code::H3_EXCESSIVE_LOAD.value()),
                    b"nothing is taken of what is asked for",
                );
            }
            End::Done => {
                // What was sent last may have to be sent again.
                let _ = timeout(self.settling(), self.quic.closed()).await;
                return;
            }
            End::Idle => {
                worker.counts().timed_out.increment();
                false
            }
            End::Drain => true,
        };
        let kept = Instant::now() + worker.registry.parting(draining);
        let mut drain = worker.drain.clone();
        tokio::select! {
            () = self.wind_up(kept) => {}
            () = drain.cut() => {}
        }
        self.quic.close(varint(Code::H3_NO_ERROR.value()), b"");
    }

    /// Serves requests until there are to be no more.
    async fn requests_until(&mut self, drain: &mut Drain) -> End {
        let context = Arc::clone(&self.context);
        let limits = &context.worker.config.limits;
        let look = limits.idle.min(limits.write_stall) / LOOKS;
        let (mut draining, mut looking) = (pin!(drain.draining()), pin!(sleep(look)));
        // How many requests there were at the last look, and since when looks have found no more.
        let (mut asked, mut quiet) = (0, Instant::now());
        let mut watch = StallWatch::default();
        loop {
            tokio::select! {
                biased;
                accepted = self.h3.accept() => match accepted {
                    Ok(Some(resolver)) => self.begin(resolver),
                    Ok(None) => return End::Done,
                    Err(_) => return End::Lost,
                },
                Some(rest) = self.unsent.recv() => self.send_unsent(rest),
                _ = draining.as_mut() => return End::Drain,
                () = looking.as_mut() => {
                    self.reap();
                    self.follow();
                    let before = std::mem::replace(&mut asked, self.progress.opened());
                    let busy = asked != before || !self.requests.is_empty();
                    let now = Instant::now();
                    if busy {
                        quiet = now;
                    } else if now - quiet >= limits.idle {
                        return End::Idle;
                    }
                    if watch.is_over(&context.stall, now, limits.write_stall) {
                        return End::Stalled;
                    }
                    looking.as_mut().reset(now + look);
                }
            }
        }
    }

    /// Takes note of where the client is now.
    fn follow(&mut self) {
        let remote = self.quic.remote_address();
        if self.remote != remote {
            self.remote = remote;
            let window = send_window(self.quic.rtt());
            self.quic.set_send_window(window);
            self.context.stall.set_window(window);
        }
    }

    /// Forgets the requests that have ended.
    fn reap(&mut self) {
        while self.requests.try_join_next().is_some() {}
    }

    /// Serves a request: here when it can be answered at once, as most can, else as a task of its own.
    fn begin(&mut self, resolver: Resolver<S>) {
        self.begun = true;
        self.reap();
        let context = Arc::clone(&self.context);
        let mut serving = Box::pin(request::serve(context, resolver, self.service.clone()));
        // A task polls it anew, and is woken for what it then waits for.
        if serving.as_mut().poll(&mut task::Context::from_waker(task::Waker::noop())).is_pending() {
            self.requests.spawn(serving);
        }
    }

    /// Sends what the client did not take at once of an answer.
    fn send_unsent(&mut self, rest: Unsent) {
        self.requests.spawn(request::send_unsent(Arc::clone(&self.context), rest));
    }

    /// What happens next, once the end has begun.
    async fn next(&mut self) -> Event<S> {
        tokio::select! {
            accepted = self.h3.accept() => match accepted {
                Ok(Some(resolver)) => Event::Request(resolver),
                Ok(None) | Err(_) => Event::Ended,
            },
            Some(_) = self.requests.join_next() => Event::Answered,
        }
    }

    /// Ends the connection in order (RFC 9114, section 5.2): a notice that leaves room for what the client has
    /// sent already, one that names the first request that will not be served, then the rest of the answers. What comes
    /// before `kept` is served, however long its client was held up.
    async fn wind_up(&mut self, kept: Instant) {
        self.progress.close();
        while let Ok(rest) = self.unsent.try_recv() {
            self.send_unsent(rest);
        }
        if self.h3.shutdown(ANY).await.is_err() {
            return;
        }
        // Of a connection without a request even the first notice names the first there could be.
        if self.begun {
            if !self.settle(kept, true).await {
                return;
            }
            if self.h3.shutdown(1 + self.progress.ahead()).await.is_err() {
                return;
            }
        }
        while !self.requests.is_empty() {
            match self.next().await {
                // h3 would still serve the one it has named.
                Event::Request(resolver) => reject(resolver),
                Event::Answered => {}
                Event::Ended => break,
            }
        }
        self.settle(kept, false).await;
    }

    /// Gives the client time to take in what it was told, until `kept` at least; false if the connection has ended
    /// meanwhile.
    async fn settle(&mut self, kept: Instant, serving: bool) -> bool {
        let until = kept.max(Instant::now() + self.settling());
        loop {
            let event = tokio::select! {
                event = self.next() => event,
                () = tokio::time::sleep_until(until) => return true,
            };
            match event {
                Event::Request(resolver) if serving => self.begin(resolver),
                Event::Request(resolver) => reject(resolver),
                Event::Answered => {}
                Event::Ended => {
                    // A client that wants no more may yet have to be sent something again.
                    let _ = timeout(self.settling(), self.quic.closed()).await;
                    return false;
                }
            }
        }
    }

    fn settling(&self) -> Duration {
        SETTLE + ROUND_TRIPS * self.quic.rtt()
    }
}

/// Tells the client that a request was not looked at, so that it may be sent again elsewhere.
fn reject<S: HttpService>(mut resolver: Resolver<S>) {
    resolver.frame_stream.reset(Code::H3_REQUEST_REJECTED.value());
}
