//! HTTP/2 (RFC 9113), with the h2 crate.
//!
//! - [`fast_path`]: plain requests that the fast path answers before h2 sees them.
//! - `frame`: the parts of frames that are read outside h2.
//! - [`library`]: h2 itself, over a single type of stream.
//! - [`request`]: one request and its response.
//! - [`window`]: how much a client may send before it is read.
//! - [`cork`]: gathers frames that are sent together.
//! - [`stall_detector`]: detects clients that take nothing, and lets them finish sending at the end.

mod cork;
pub mod fast_path;
mod frame;
mod library;
mod request;
mod stall_detector;
mod window;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};

use h2::server::Builder;
use http::HeaderValue;

use crate::body;
use crate::http_service::HttpService;
use crate::lifecycle::{ConnectionDeadline, LINGER};
use crate::peer::{Peer, Protocol};
use crate::response::SendBuffer;
use crate::worker_context::WorkerContext;

pub use cork::MOST as GATHERED_BYTES;
use cork::{Cork, CorkedIo};
use fast_path::{FastPathIo, Shared};
pub use library::ByteStream;
use library::{Accepted, handshake};
use request::ConnectionContext;
use stall_detector::{StallDetector, WatchedIo};
use window::Window;

/// The most streams that a client may reset before they were looked at. Beyond that the connection is closed, since a
/// client that resets its requests costs more than one that waits (CVE-2023-44487, rapid reset).
const PENDING_RESETS: usize = 20;

/// The most streams that a client may make this side reset by invalid frames. Beyond that the connection is closed,
/// since this is rapid reset by other means (CVE-2025-8671, MadeYouReset).
const LOCAL_RESETS: usize = 20;

/// How many bytes of responses a stream holds for a slow client.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// What a connection waits for. Each has its own timeout.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// A request.
    Idle,
    /// The end of an exchange.
    Busy,
    /// The client to close, after it was asked to.
    Close,
    /// The client to close, after it was told that nothing more will come.
    Linger,
}

/// Serves a connection to its end. Answers have `alt_svc`; `more` is the same as an HTTP/1.1 line.
pub async fn serve<S: HttpService>(
    worker: &Arc<WorkerContext>,
    deadline: &Arc<ConnectionDeadline>,
    io: Box<dyn ByteStream>,
    peer: Peer,
    alt_svc: Option<HeaderValue>,
    more: &[u8],
    service: S,
) {
    let _open = worker.metrics.open(worker.index, Protocol::Http2);
    let (config, limits) = (&worker.config.http2, &worker.config.limits);
    let (stall, fast) = (StallDetector::default(), Arc::<Shared>::default());
    let bodies = Arc::new(body::http2::Shared {
        received: AtomicUsize::new(0),
        deadline: Arc::clone(deadline),
        worker: Arc::clone(worker),
    });
    let context = Arc::new(ConnectionContext {
        limits: limits.clone(),
        worker: Arc::clone(worker),
        peer,
        alt_svc,
        more: more.into(),
        bodies: Arc::clone(&bodies),
        buffer: SendBuffer::new(worker.answers.held()),
    });
    let cork = Cork::default();
    let io = CorkedIo::new(WatchedIo::new(io, stall.clone()), cork.clone(), worker.answers.held());
    let io = FastPathIo::new(io, &service, &context, &fast);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(config.streams)
        .initial_window_size(config.stream_window)
        .initial_connection_window_size(config.connection_window)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(Some(LOCAL_RESETS))
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    let shaking = handshake(&builder, Box::new(io));
    deadline.set(&worker.registry, limits.handshake_time);
    let Some(Ok(mut connection)) = deadline.timeout(&worker.registry, shaking).await else {
        worker.counts().handshake_failures.increment();
        return;
    };
    let mut window = Window::new(config, &mut *connection, bodies);
    let mut accepted = Vec::new();
    let mut waiting = None;
    let mut leaving = false;
    let mut answered = 0;
    std::future::poll_fn(move |task| {
        if deadline.is_draining() && !leaving {
            leaving = true;
            connection.graceful_shutdown();
        }
        cork.hold();
        loop {
            // Polling the connection sends output. So requests that came together are accepted together, and answered
            // together.
            while let Poll::Ready(next) = connection.poll_accept(task) {
                let Some(Ok(stream)) = next else { return Poll::Ready(()) };
                accepted.push(stream);
            }
            if S::FAST
                && let Some(reason) = fast.take_end()
            {
                connection.abrupt_shutdown(reason);
                continue;
            }
            if accepted.is_empty() {
                // Polling the connection once more flushes what was gathered.
                if cork.release() {
                    continue;
                }
                break;
            }
            cork.hold();
            let second = worker.registry.clock.second();
            for Accepted { request, respond } in accepted.drain(..) {
                let context = Arc::clone(&context);
                let answer = S::FAST.then(|| fast.take(respond.stream_id())).flatten();
                begin(match answer {
                    Some(answer) => fast_path::send(context, answer, respond),
                    None => Box::pin(request::serve(context, service.clone(), request, respond, second)),
                });
            }
        }
        // An idle connection holds no more memory than necessary.
        accepted.shrink_to(0);
        window.poll(task, &mut *connection);
        if S::FAST && std::mem::replace(&mut answered, fast.answered()) != fast.answered() {
            // There were requests in between.
            waiting = None;
        }
        let busy = connection.has_streams() || cork.is_filled() || S::FAST && fast.is_unsent();
        let wait = poll_wait(worker, deadline, busy, &stall, &mut waiting, leaving);
        if wait.is_ready() && waiting == Some(Wait::Idle) {
            leaving = true;
            connection.graceful_shutdown();
            // Polling the connection sends it.
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        wait
    })
    .await;
}

/// The future of a running answer.
type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a stream: here if it completes at once, as most do, otherwise as a separate task.
fn begin(mut stream: Stream) {
    // A task polls it again, and registers its own waker.
    let mut context = Context::from_waker(Waker::noop());
    if stream.as_mut().poll(&mut context).is_pending() {
        tokio::spawn(stream);
    }
}

/// Nothing more can be done now, so checks the deadline. Ready when it has passed. `busy` says whether a request is
/// running.
fn poll_wait(
    worker: &WorkerContext,
    deadline: &ConnectionDeadline,
    busy: bool,
    stall: &StallDetector,
    waiting: &mut Option<Wait>,
    leaving: bool,
) -> Poll<()> {
    let (registry, limits) = (&worker.registry, &worker.config.limits);
    let (wait, time) = match busy {
        _ if stall.is_lingering() => (Wait::Linger, LINGER),
        true => (Wait::Busy, limits.write_stall),
        false if leaving => (Wait::Close, registry.parting(deadline.is_draining())),
        false => (Wait::Idle, limits.idle),
    };
    if waiting.replace(wait) != Some(wait) {
        stall.is_over();
        deadline.set(registry, time);
    } else if deadline.has_passed(registry) {
        if wait == Wait::Busy && !stall.is_over() {
            // Checked again after that time.
            deadline.set(registry, time);
            return Poll::Pending;
        }
        // A client that does not close although it was asked to was counted before, unless the listener drains.
        if matches!(wait, Wait::Idle | Wait::Busy) {
            worker.counts().timed_out.increment();
        }
        return Poll::Ready(());
    }
    Poll::Pending
}
