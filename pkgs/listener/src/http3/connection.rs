//! The requests of one connection.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task;
use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use h3::quic::StreamId;
use h3::server;
use quinn_proto::crypto::rustls::HandshakeData;
use service::address_limits::AddressRate;
use service::proxies::Source;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::context::Context;
use super::error_code::varint;
use super::fast_path::{Progress, StreamFastPath, Unsent};
use super::request;
use super::send_window::SendWindow;
use super::stall_detector::{StallDetector, StallWatch};
use super::transport;
use crate::http_service::HttpService;
use crate::lifecycle::drain::Drain;
use crate::peer::{Peer, PeerInfo, Protocol, TlsInfo};
use crate::quic_driver;
use crate::response::SendBuffer;
use crate::worker_context::WorkerContext;

/// The greatest id of a request (RFC 9000, section 2.1), which the first of two notices of a connection's end names.
const LAST_ID: u64 = (1 << 62) - 4;
/// The least number of round trips between the two notices, and before a connection is closed. The client may have sent
/// something in that time, and lost packets may have to be sent again.
const ROUND_TRIPS: u32 = 3;
/// The minimum of that time, since acknowledgements may wait 25 ms (RFC 9000, section 18.2) and clocks are coarse.
const SETTLE: Duration = Duration::from_millis(100);

/// How often per timeout an idle or stalled connection is checked. So no request has to move a timer, and the timeout
/// is exceeded by at most this fraction.
const LOOKS: u32 = 4;

/// Serves a connection to its end.
pub(crate) async fn serve(
    worker: &Arc<WorkerContext>,
    local: SocketAddr,
    quic: quic_driver::Connection,
    address_rate: Option<AddressRate>,
    service: impl HttpService,
) {
    let _open = worker.metrics.open(worker.index, Protocol::Http3);
    let limits = &worker.config.limits;
    let context = Arc::new(Context {
        worker: Arc::clone(worker),
        peer: peer(worker, &quic, local, address_rate),
        window: SendWindow::new(quic.clone(), worker.answers.held()),
        buffer: SendBuffer::new(worker.answers.held()),
        stall: StallDetector::default(),
        headless: AtomicU32::new(0),
    });
    let (fast, progress, unsent) = StreamFastPath::new(service.clone(), Arc::clone(&context));
    // Twice the limit of a decoded head, so that h3 can still answer a request whose head is slightly too long.
    let transport = transport::Connection::new(quic.clone(), Some(fast), 2 * limits.head_bytes as u64);
    let mut builder = server::builder();
    let building =
        builder.max_field_section_size(limits.head_bytes as u64).send_grease(false).build(transport);
    // It waits until the client allows it to open streams.
    let Ok(Ok(h3)) = timeout(limits.handshake_time, building).await else {
        return worker.counts().handshake_failures.increment();
    };
    let (remote, control) = (quic.remote_address(), quic.send_streams());
    let requests = JoinSet::new();
    Connection { h3, quic, control, remote, context, service, progress, unsent, requests }.run().await;
}

fn peer(
    worker: &WorkerContext,
    quic: &quic_driver::Connection,
    local: SocketAddr,
    address_rate: Option<AddressRate>,
) -> Peer {
    let proxies = &worker.config.proxies;
    let remote = quic.remote_address();
    let handshake = quic.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    Peer::new(PeerInfo {
        remote: Some(remote),
        // The socket may be bound to all addresses.
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
    quic: quic_driver::Connection,
    /// How many streams of its own h3 sends on, which never end.
    control: usize,
    /// The client's address at the last check, since it may move (RFC 9000, section 9).
    remote: SocketAddr,
    context: Arc<Context>,
    service: S,
    /// The state of the fast path.
    progress: Arc<Progress>,
    /// Its answers that wait for room.
    unsent: mpsc::UnboundedReceiver<Unsent>,
    /// Running requests, which end with the connection.
    requests: JoinSet<()>,
}

/// Why a connection gets no more requests.
enum End {
    /// It was idle for too long.
    Idle,
    /// The client takes no answers.
    Stalled,
    /// The listener drains.
    Drain,
    /// The connection is lost.
    Lost,
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

    /// Serves requests until no more are accepted.
    async fn requests_until(&mut self, drain: &mut Drain) -> End {
        let context = Arc::clone(&self.context);
        let limits = &context.worker.config.limits;
        let look = limits.idle.min(limits.write_stall) / LOOKS;
        let (mut draining, mut looking) = (pin!(drain.draining()), pin!(sleep(look)));
        // How many requests there were at the last check, and since when no more have come.
        let (mut asked, mut quiet) = (0, Instant::now());
        let mut watch = StallWatch::default();
        loop {
            tokio::select! {
                biased;
                accepted = self.h3.accept() => match accepted {
                    Ok(Some(resolver)) => self.begin(resolver),
                    // None only after a client's GOAWAY, which h3 never sees.
                    Ok(None) | Err(_) => return End::Lost,
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
                    } else if now - quiet >= look {
                        // Longer than answers wait for their turn to be sent.
                        context.window.shrink();
                    }
                    if watch.is_over(&context.stall, now, limits.write_stall) {
                        return End::Stalled;
                    }
                    looking.as_mut().reset(now + look);
                }
            }
        }
    }

    /// Records the client's current address.
    fn follow(&mut self) {
        let remote = self.quic.remote_address();
        if self.remote != remote {
            self.remote = remote;
            self.context.window.follow();
        }
    }

    /// Removes ended requests.
    fn reap(&mut self) {
        while self.requests.try_join_next().is_some() {}
    }

    /// Serves a request: here if it can be answered at once, as most can, otherwise as a separate task.
    fn begin(&mut self, resolver: Resolver<S>) {
        self.reap();
        let context = Arc::clone(&self.context);
        let mut serving = Box::pin(request::serve(context, resolver, self.service.clone()));
        // A task polls it again, and registers its own waker.
        if serving.as_mut().poll(&mut task::Context::from_waker(task::Waker::noop())).is_pending() {
            self.requests.spawn(serving);
        }
        if self.context.has_too_many_headless() {
            let why = b"too many requests have ended before their head";
            self.quic.close(varint(Code::H3_EXCESSIVE_LOAD.value()), why);
        }
    }

    /// Sends the rest of an answer that the client did not take at once.
    fn send_unsent(&mut self, rest: Unsent) {
        self.requests.spawn(request::send_unsent(Arc::clone(&self.context), rest));
    }

    /// Waits for the next event, once the end has started. False if the connection has ended.
    async fn next(&mut self) -> bool {
        tokio::select! {
            accepted = self.h3.accept() => match accepted {
                Ok(Some(resolver)) => {
                    self.begin(resolver);
                    true
                }
                Ok(None) | Err(_) => false,
            },
            Some(_) = self.requests.join_next() => true,
        }
    }

    /// Serves the connection until then. False if it has ended before.
    async fn serve_until(&mut self, then: Instant) -> bool {
        let mut time = pin!(sleep_until(then));
        loop {
            tokio::select! {
                open = self.next() => if !open {
                    return false;
                },
                () = time.as_mut() => return true,
            }
        }
    }

    /// Ends the connection in order (RFC 9114, section 5.2). The first notice still permits requests that the client
    /// has already sent. The second one names the first request that will not be served. Then the remaining answers are
    /// sent. Requests that arrive before `kept` are served, however long their client was delayed.
    async fn wind_up(&mut self, kept: Instant) {
        self.progress.close();
        while let Ok(rest) = self.unsent.try_recv() {
            self.send_unsent(rest);
        }
        // h3 would name the first request if there was none yet, although it may be on its way.
        let last_id = StreamId::try_from(LAST_ID).expect("an id of 62 bits");
        if self.h3.inner.shutdown(&mut None, last_id).await.is_err() {
            return;
        }
        if !self.serve_until(self.settled(kept)).await {
            return;
        }
        // What h3 rejects is followed by a notice that would disown what is answered.
        self.progress.reject();
        if self.h3.shutdown(1 + self.progress.ahead()).await.is_err() {
            return;
        }
        while !self.requests.is_empty() {
            if !self.next().await {
                return;
            }
        }
        let mut until = self.settled(kept);
        let last = until + self.context.worker.config.limits.write_stall;
        while self.serve_until(until).await && !self.is_delivered() && Instant::now() < last {
            until = Instant::now() + SETTLE;
        }
    }

    /// When the client has received a notice, and has nothing more on its way, at the earliest at `kept`.
    fn settled(&self, kept: Instant) -> Instant {
        kept.max(Instant::now() + SETTLE + ROUND_TRIPS * self.quic.rtt())
    }

    /// Whether the client has acknowledged all answers. A request's task ends once the last piece is in the send
    /// window, from which closing the connection would drop it.
    fn is_delivered(&self) -> bool {
        self.quic.send_streams() <= self.control
    }
}
