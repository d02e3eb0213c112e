//! HTTP/1.1 (RFC 9112), and HTTP/1.0 as far as it fits.
//!
//! A request costs one read and one write, and requests that arrive together are answered together. A connection
//! borrows memory from its thread only while it needs it, so an idle one holds next to none.
//!
//! - [`decode`]: reads a request's head, strictly.
//! - [`request_body`]: a request body that arrives after its head; [`request_head::chunked`] decodes it.
//! - [`encode`]: writes a response's head, and frames its body.
//! - [`buffered_io`] and [`buffer_pool`]: the bytes in both directions.

pub mod buffer_pool;
pub mod decode;

mod buffered_io;
mod encode;
mod request_body;

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::{Method, Request, Response, Version, response};
use http_body::Body as _;
use service::panics::{self, Catch};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http_service::HttpService;
use crate::http_service::{Connection, Exchange, FastAnswer};
use crate::lifecycle::{ConnectionDeadline, LINGER};
use crate::net::Transport;
use crate::peer::{Peer, Protocol};
use crate::response::Refusal;
use crate::response::date;
use crate::response::{RequestRecord, request_record};
use crate::worker_context::WorkerContext;

use buffered_io::BufferedIo;
use decode::{Head, Room};
use encode::{Framing, ResponseContext};
use request_body::RequestBody;

/// Answers are sent once they have this many bytes, however many requests still wait.
const SEND_BYTES: usize = 32 * 1024;

/// The longest part of a request's line that is logged, in bytes.
const LOGGED_BYTES: usize = 256;

/// What happens to a connection after an exchange.
enum Next {
    /// It waits for another request.
    Keep,
    /// It is closed once everything sent has arrived. If `polite`, this side waits for the client to close first.
    Close { polite: bool },
    /// It is dropped.
    Drop,
}

/// Serves a connection to its end. `received` was already read from it.
pub async fn serve<S: HttpService>(
    worker: &WorkerContext,
    deadline: &ConnectionDeadline,
    io: impl Transport,
    received: &[u8],
    peer: Peer,
    more: &[u8],
    mut service: S,
) {
    let _open = worker.metrics.open(worker.index, Protocol::Http1);
    let mut conn = BufferedIo::new(worker, deadline, io, received);
    // A new client gets less time than a known one.
    deadline.set(&worker.registry, worker.config.limits.handshake_time);
    let mut waiting = Some(Wait::Idle);
    let next = loop {
        let next = match next_head(&mut conn, waiting.take(), &peer, more, &mut service).await {
            Ok(NextRequest::Head(head)) => {
                let (method, path) = (head.method.clone(), head.uri.path_and_query().cloned());
                let mut record = RequestRecord::begin(
                    worker.log.as_ref(),
                    &peer,
                    head.version,
                    (&head.method, &head.uri, &head.fields),
                );
                let mut answered = false;
                let progress = (&mut record, &mut answered);
                let next = Catch::new(pin!(S::exchange(exchange(
                    &mut conn,
                    head,
                    &peer,
                    more,
                    &mut service,
                    progress
                ))))
                .await;
                // Not a separate function, since its future would need space for a second head.
                next.unwrap_or_else(|panic| {
                    let path = path.as_ref().map_or("", |path| path.as_str());
                    panic.log("connection", &format_args!("{method} {path}"));
                    if answered {
                        return Next::Drop;
                    }
                    refuse(&mut conn, worker.refuse(Refusal::Panicked, &mut record), method == Method::HEAD);
                    Next::Close { polite: true }
                })
            }
            Ok(NextRequest::Closed) => {
                // A client that asked for the end sends nothing more.
                Next::Close { polite: deadline.is_draining() || !conn.input.is_empty() }
            }
            Ok(NextRequest::Gone) => Next::Drop,
            Err(refusal) => {
                let mut record = RequestRecord::of_bytes(worker.log.as_ref(), &peer, conn.input.bytes());
                let is_head = conn.input.bytes().starts_with(b"HEAD ");
                refuse(&mut conn, worker.refuse(refusal, &mut record), is_head);
                Next::Close { polite: true }
            }
        };
        if !matches!(next, Next::Keep) {
            break next;
        }
    };
    if let Next::Close { polite } = next {
        close(&mut conn, polite, peer.tls.is_some()).await;
    }
}

/// Answers a client that is not admitted, and closes the connection.
pub async fn refuse_connection(
    worker: &WorkerContext,
    deadline: &ConnectionDeadline,
    peer: &Peer,
    io: impl Transport,
    refusal: Refusal,
) {
    let mut conn = BufferedIo::new(worker, deadline, io, b"");
    let mut record = RequestRecord::of_bytes(worker.log.as_ref(), peer, b"");
    refuse(&mut conn, worker.refuse(refusal, &mut record), false);
    close(&mut conn, true, false).await;
}

/// What a connection without a request waits for. Each has its own timeout.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The first byte of a request.
    Idle,
    /// The same while draining, when it may not come.
    Grace,
    /// The rest of a head. It has a single deadline, however slowly it drips.
    Head,
}

/// The result of waiting for a request.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each request")]
enum NextRequest {
    /// A request for the service.
    Head(Head),
    /// The fast path has given the last answer.
    Closed,
    /// The client is gone, or was idle for too long.
    Gone,
}

/// Waits for the next head that the fast path declines. `waiting` is what the connection has been waiting for.
async fn next_head<S: HttpService>(
    conn: &mut BufferedIo<'_, impl AsyncRead + AsyncWrite + Unpin>,
    mut waiting: Option<Wait>,
    peer: &Peer,
    more: &[u8],
    service: &mut S,
) -> Result<NextRequest, Refusal> {
    // Whether there is something new since the head was last examined.
    let mut look = true;
    let mut timed = None;
    std::future::poll_fn(|context| {
        loop {
            if look && !conn.input.is_empty() && conn.output.len() < SEND_BYTES {
                let before = conn.input.bytes().len();
                let mut declined = None;
                let found = answer_plain(conn, peer, more, service, &mut declined)?;
                if conn.input.bytes().len() < before {
                    waiting = None;
                }
                if let Some(head) = declined {
                    conn.deadline.clear();
                    // The previous request's body may have been waited for.
                    conn.deadline.set_awaits_body(&conn.worker.registry, false);
                    return Poll::Ready(Ok(NextRequest::Head(head)));
                }
                match found {
                    Found::Last => return Poll::Ready(Ok(NextRequest::Closed)),
                    Found::Part => look = false,
                    Found::Rest => {}
                }
            }
            let sent = conn.poll_send(context);
            if let Some(started) = timed.take() {
                conn.worker.counts().answered(started);
            }
            if ready!(sent).is_err() {
                return Poll::Ready(Ok(NextRequest::Gone));
            }
            if look && !conn.input.is_empty() {
                continue;
            }
            let before = conn.input.bytes().len();
            match conn.poll_receive(context) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Ok(NextRequest::Gone)),
                Poll::Ready(Ok(_)) => {
                    if S::FAST {
                        timed = conn.worker.counts().read();
                    }
                    let bytes = conn.input.bytes();
                    // The first bytes are always examined.
                    look = look || memchr::memchr(b'\n', &bytes[before..]).is_some();
                    look |= bytes.len() >= conn.limits().head_bytes;
                }
                Poll::Pending => return poll_wait(conn, &mut waiting),
            }
        }
    })
    .await
}

/// The result for the received requests.
enum Found {
    /// The fast path has given the last answer.
    Last,
    /// The rest is an incomplete head.
    Part,
    /// Nothing is left, or answers are to be sent first, or a request is for the service.
    Rest,
}

/// Has the fast path answer requests, up to one that it declines. That one is left in `declined`, since it is large:
/// returning it would cost each answer a copy.
///
/// # Errors
/// When a head is refused, or the fast path panics. Nothing of that answer is left then.
#[inline]
fn answer_plain<S: HttpService>(
    conn: &mut BufferedIo<'_, impl AsyncRead + AsyncWrite + Unpin>,
    peer: &Peer,
    more: &[u8],
    service: &mut S,
    declined: &mut Option<Head>,
) -> Result<Found, Refusal> {
    let BufferedIo { worker, deadline, input, output, .. } = conn;
    let limits = &worker.config.limits;
    let mut before = None;
    // Once for a whole pipeline.
    let answered = date::with_end(worker.registry.clock.second(), |end| {
        let exchange = Exchange { peer, closes: deadline.is_draining(), more, end };
        panics::catch(|| -> Result<Found, Refusal> {
            while !input.is_empty() && output.len() < SEND_BYTES {
                let mut room: Room<'_> = request_head::room();
                // Read in place, since they are large too.
                let read = decode::lines(input.bytes(), &mut room, limits);
                let lines = match &read {
                    Ok(Some(lines)) => lines,
                    Ok(None) => return Ok(Found::Part),
                    Err(error) => return Err((*error).into()),
                };
                let length = lines.length;
                let connection = if S::FAST {
                    let out = output.buffer();
                    let start = out.len();
                    before = Some(start);
                    let since = worker.log.as_ref().map(|_| Instant::now());
                    service.fast(lines, &exchange, out).map(|FastAnswer { connection, body }| {
                        out.extend_from_slice(&body);
                        if let Some(since) = since {
                            let answer = (&out[start..], 0);
                            request_record::logged_at_once(worker.log.as_ref(), peer, lines, answer, since);
                        }
                        connection
                    })
                } else {
                    None
                };
                let Some(connection) = connection else {
                    *declined = Some(Head::of(input.bytes(), lines, limits)?);
                    input.consume(length);
                    return Ok(Found::Rest);
                };
                input.consume(length);
                if connection == Connection::Close {
                    return Ok(Found::Last);
                }
            }
            Ok(Found::Rest)
        })
    });
    answered.unwrap_or_else(|panic| {
        if let Some(before) = before {
            output.buffer().truncate(before);
        }
        panic.log("connection", &request_line(input.bytes()));
        Err(Refusal::Panicked)
    })
}

/// The request line at the start of `bytes`, in a form that can be logged.
fn request_line(bytes: &[u8]) -> impl std::fmt::Display + '_ {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = line.strip_suffix(b" HTTP/1.1").unwrap_or(line);
    line[..line.len().min(LOGGED_BYTES)].escape_ascii()
}

/// Nothing more can be done now, so updates the deadline.
fn poll_wait(
    conn: &BufferedIo<'_, impl AsyncRead + AsyncWrite + Unpin>,
    waiting: &mut Option<Wait>,
) -> Poll<Result<NextRequest, Refusal>> {
    let (deadline, registry, limits) = (conn.deadline, &conn.worker.registry, conn.limits());
    let (wait, time) = match (conn.input.is_empty(), deadline.is_draining()) {
        (false, _) => (Wait::Head, limits.head_time),
        (true, false) => (Wait::Idle, limits.idle),
        (true, true) => (Wait::Grace, registry.grace()),
    };
    if waiting.replace(wait) != Some(wait) {
        deadline.set(registry, time);
    } else if deadline.has_passed(registry) {
        conn.worker.counts().timed_out.increment();
        return Poll::Ready(if wait == Wait::Head { Err(Refusal::Slow) } else { Ok(NextRequest::Gone) });
    }
    Poll::Pending
}

/// Answers a request that no service sees, one with `HEAD` without the body.
fn refuse(
    conn: &mut BufferedIo<'_, impl AsyncRead + AsyncWrite + Unpin>,
    response: Response<Bytes>,
    is_head: bool,
) {
    let (parts, body) = response.into_parts();
    refusal_head(conn.output.buffer(), &parts, body.len() as u64, conn.worker.registry.clock.second());
    if !is_head {
        conn.output.push(body);
    }
}

/// Appends the head of the connection's last answer, whose body has `length` bytes, also if it is not sent.
pub fn refusal_head(out: &mut Vec<u8>, parts: &response::Parts, length: u64, second: u64) {
    date::with_line(second, |date| {
        let exact = Some(length);
        let response_context = ResponseContext {
            version: Version::HTTP_11,
            head: false,
            exact,
            keep_alive: false,
            date,
            more: b"",
        };
        encode::write(out, parts.status, &parts.headers, &response_context);
    });
}

/// Handles one request and its response. Logs and metrics are recorded, and `answered` becomes true when the response
/// starts.
async fn exchange<S: HttpService>(
    conn: &mut BufferedIo<'_, impl AsyncRead + AsyncWrite + Unpin>,
    head: Head,
    peer: &Peer,
    more: &[u8],
    service: &mut S,
    (record, answered): (&mut RequestRecord, &mut bool),
) -> Next {
    let (mut body, mut inbound) = RequestBody::new(head.framing, head.expects_continue, conn);
    // Held until the response starts, since what a service makes of a body may be as large.
    let reserved = match inbound.announced().map(|bytes| conn.worker.reserve(&head.method, bytes)).transpose()
    {
        Ok(reserved) => reserved,
        Err(refusal) => {
            let response = conn.worker.refuse(refusal, record);
            refuse(conn, response, head.method == Method::HEAD);
            return Next::Close { polite: true };
        }
    };
    if let Some(room) = &reserved {
        body = body.within(room);
    }
    let (version, is_head, asked_to_keep) = (head.version, head.method == Method::HEAD, head.keep_alive);
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = head.uri;
    *request.version_mut() = version;
    *request.headers_mut() = head.fields;
    request.extensions_mut().insert(peer.clone());
    if let Some(context) = record.context() {
        request.extensions_mut().insert(context.clone());
    }

    if std::future::poll_fn(|context| service.poll_ready(context)).await.is_err() {
        return Next::Drop;
    }
    let response = {
        let mut answering = pin!(service.call(request));
        std::future::poll_fn(|context| {
            meanwhile(conn, &mut inbound, context, |context| answering.as_mut().poll(context).map(Result::ok))
        })
        .await
    };
    let Ok(Some(response)) = response else { return Next::Drop };
    drop(reserved);

    let (mut parts, body) = response.into_parts();
    let told = record.respond(&mut parts);
    let exact = told.as_ref().map_or_else(|| body.size_hint().exact(), |told| Some(told.len() as u64));
    *answered = true;
    let keep_alive = asked_to_keep
        && inbound.is_reusable(conn.input.bytes())
        && !conn.broken
        && !conn.deadline.is_draining();
    let (framing, keep_alive) = date::with_line(conn.worker.registry.clock.second(), |date| {
        let response_context = ResponseContext { version, head: is_head, exact, keep_alive, date, more };
        encode::write(conn.output.buffer(), parts.status, &parts.headers, &response_context)
    });
    buffer_pool::give_fields(parts.headers);
    inbound.answered();
    if let (Some(told), Framing::Length(_)) = (told, framing) {
        record.sent(told.len());
        conn.output.push(told);
    } else if framing != Framing::None
        && framing != Framing::Length(0)
        && !send(conn, &mut inbound, framing, body, record).await
    {
        return Next::Drop;
    }
    if conn.output.len() >= SEND_BYTES
        && std::future::poll_fn(|context| conn.poll_send(context)).await.is_err()
    {
        return Next::Drop;
    }
    if !keep_alive || conn.broken {
        // A client that asked for the end sends nothing after what it announced.
        let polite = asked_to_keep || !matches!(inbound, RequestBody::Done) || !conn.input.bytes().is_empty();
        return Next::Close { polite };
    }
    if matches!(inbound, RequestBody::Done) || discard(conn, &mut inbound).await {
        Next::Keep
    } else {
        Next::Close { polite: true }
    }
}

/// Sends a response's body. Returns whether it was sent completely.
async fn send<B: http_body::Body<Data = Bytes>>(
    conn: &mut BufferedIo<'_, impl AsyncRead + AsyncWrite + Unpin>,
    inbound: &mut RequestBody,
    framing: Framing,
    body: B,
    record: &mut RequestRecord,
) -> bool {
    let mut body = pin!(body);
    let mut left = if let Framing::Length(length) = framing { Some(length) } else { None };
    let chunked = framing == Framing::Chunked;
    loop {
        let next = std::future::poll_fn(|context| {
            meanwhile(conn, inbound, context, |context| {
                body.as_mut().poll_frame(context).map(|frame| frame.map(Result::ok))
            })
        });
        let piece = match next.await {
            Ok(Some(Some(frame))) => match frame.into_data() {
                Ok(piece) if !piece.is_empty() => piece,
                // Trailers are skipped, since no client here requests them; so are empty pieces.
                _ => continue,
            },
            Ok(None) => break,
            Ok(Some(None)) | Err(_) => return false,
        };
        if let Some(left) = &mut left {
            // More bytes than announced would be taken for the next response.
            let Some(rest) = left.checked_sub(piece.len() as u64) else { return false };
            *left = rest;
        }
        if chunked {
            encode::chunk_size(conn.output.buffer(), piece.len());
        }
        record.sent(piece.len());
        let large = conn.output.push(piece);
        if (large || conn.output.len() >= SEND_BYTES)
            && std::future::poll_fn(|context| conn.poll_send(context)).await.is_err()
        {
            return false;
        }
        if chunked {
            conn.output.buffer().extend_from_slice(b"\r\n");
        }
        if left == Some(0) {
            return true;
        }
    }
    if chunked {
        conn.output.buffer().extend_from_slice(b"0\r\n\r\n");
    }
    left.unwrap_or(0) == 0
}

/// Polls the service's future. While it is pending, receives what the service reads, sends pending output, and checks
/// whether the client is gone.
fn meanwhile<T>(
    conn: &mut BufferedIo<'_, impl AsyncRead + AsyncWrite + Unpin>,
    inbound: &mut RequestBody,
    context: &mut Context<'_>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<io::Result<T>> {
    loop {
        if let Poll::Ready(done) = poll(context) {
            return Poll::Ready(Ok(done));
        }
        if !inbound.pump(conn, context)? {
            break;
        }
    }
    conn.poll_meanwhile(context, matches!(inbound, RequestBody::Done))?;
    Poll::Pending
}

/// Receives a body that nobody reads, up to a limit. Returns whether the connection can be reused.
async fn discard(
    conn: &mut BufferedIo<'_, impl AsyncRead + AsyncWrite + Unpin>,
    inbound: &mut RequestBody,
) -> bool {
    let mut discarded = 0;
    let mut is_timed = false;
    std::future::poll_fn(|context| {
        if ready!(conn.poll_send(context)).is_err() {
            return Poll::Ready(false);
        }
        // Only now: a client that takes the answer slowly has a deadline for that, which ends with the answer.
        if !std::mem::replace(&mut is_timed, true) {
            conn.deadline.set(&conn.worker.registry, conn.limits().head_time);
        }
        match inbound.poll_discard(conn, context, &mut discarded) {
            Poll::Pending if conn.deadline.has_passed(&conn.worker.registry) => Poll::Ready(false),
            polled => polled,
        }
    })
    .await
}

/// Sends the rest and closes the connection, without a reset that would destroy what was sent. TLS always announces the
/// end. Without TLS, there is nothing to announce if the socket is dropped next.
async fn close(conn: &mut BufferedIo<'_, impl Transport>, polite: bool, tls: bool) {
    conn.io.expect_end();
    let mut is_timed = false;
    let sent = std::future::poll_fn(|context| {
        if ready!(conn.poll_send(context)).is_err() {
            return Poll::Ready(false);
        }
        if !polite && !tls {
            return Poll::Ready(true);
        }
        let shut = Pin::new(&mut conn.io).poll_shutdown(context).map(|shut| shut.is_ok());
        if shut.is_pending() {
            // The socket has no room for TLS's last record.
            if !std::mem::replace(&mut is_timed, true) {
                conn.deadline.set(&conn.worker.registry, conn.limits().write_stall);
            } else if conn.deadline.has_passed(&conn.worker.registry) {
                return Poll::Ready(false);
            }
        }
        shut
    });
    if !sent.await || !polite {
        return;
    }
    conn.deadline.set(&conn.worker.registry, LINGER);
    std::future::poll_fn(|context| {
        loop {
            let received = conn.input.bytes().len();
            conn.input.consume(received);
            match conn.poll_receive(context) {
                Poll::Pending if !conn.deadline.has_passed(&conn.worker.registry) => return Poll::Pending,
                Poll::Ready(Ok(1..)) if !conn.deadline.has_passed(&conn.worker.registry) => {}
                _ => return Poll::Ready(()),
            }
        }
    })
    .await;
}
