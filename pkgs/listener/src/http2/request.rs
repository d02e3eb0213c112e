//! One request and its response.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::header;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use service::panics::Catch;
use tokio::time::{Instant, timeout_at};

use super::library::{Responder, Sending};
use crate::body::{Body, Expectation};
use crate::config::Limits;
use crate::early_hints::interim;
use crate::http_service::HttpService;
use crate::limits::MIN_PROGRESS_BYTES;
use crate::peer::Peer;
use crate::response::Refusal;
use crate::response::RequestRecord;
use crate::response::connection_fields;
use crate::response::date;
use crate::response::{PIECE_BYTES, Room, SendBuffer};
use crate::worker_context::WorkerContext;

use crate::body::http2::{Reader, Shared};

/// The state that a connection's streams share.
pub struct ConnectionContext {
    pub limits: Limits,
    pub worker: Arc<WorkerContext>,
    pub peer: Peer,
    pub alt_svc: Option<HeaderValue>,
    /// The same as an HTTP/1.1 line, for the fast path.
    pub more: Box<[u8]>,
    /// What its bodies tell it.
    pub bodies: Arc<Shared>,
    /// The response data that its streams hold.
    pub buffer: Arc<SendBuffer>,
}

/// Answers a request at the time `second`. Resets the stream if that fails.
pub async fn serve(
    shared: Arc<ConnectionContext>,
    service: impl HttpService,
    request: Request<RecvStream>,
    mut respond: Responder,
    second: u64,
) {
    let (method, path) = (request.method().clone(), request.uri().path_and_query().cloned());
    let head = (request.method(), request.uri(), request.headers());
    let mut record = RequestRecord::begin(shared.worker.log.as_ref(), &shared.peer, Version::HTTP_2, head);
    let mut answered = false;
    let done = {
        let progress = (&mut record, &mut answered);
        let answer = pin!(answer(&shared, service, request, &mut respond, second, progress));
        Catch::new(answer).await
    };
    let done = match done {
        Ok(done) => done,
        Err(panic) => {
            panic.log("stream", &format_args!("{method} {}", path.as_ref().map_or("", |path| path.as_str())));
            // A partial answer must not look complete.
            if answered {
                None
            } else {
                let refusal = Refusal::Panicked.response(&mut record);
                refuse(&mut respond, refusal, method == Method::HEAD, &shared, second).await
            }
        }
    };
    if done.is_none() {
        respond.send_reset(Reason::INTERNAL_ERROR);
    }
}

/// Answers a request. `None` if the stream is to be reset, which is harmless if it is gone. Logs and metrics are
/// recorded, and `answered` becomes true when the answer starts.
async fn answer(
    shared: &ConnectionContext,
    mut service: impl HttpService,
    request: Request<RecvStream>,
    respond: &mut Responder,
    second: u64,
    (record, answered): (&mut RequestRecord, &mut bool),
) -> Option<()> {
    let (parts, stream) = request.into_parts();
    let is_head = parts.method == Method::HEAD;
    if parts.headers.len() > shared.limits.fields {
        return refuse(respond, shared.worker.refuse(Refusal::HeadTooLarge, record), is_head, shared, second)
            .await;
    }
    if parts.method == Method::CONNECT {
        return refuse(respond, shared.worker.refuse(Refusal::Method, record), is_head, shared, second).await;
    }
    if let Err(refusal) = Refusal::expectation(&parts.headers) {
        return refuse(respond, shared.worker.refuse(refusal, record), is_head, shared, second).await;
    }
    let expectation = Expectation::of(&parts.headers);
    // Held until the response starts, since what a service makes of a body may be as large.
    let mut reserved = None;
    let body = if stream.is_end_stream() {
        Body::empty()
    } else {
        // h2 refuses an invalid length, and a body of another length.
        let length = parts.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let room = match shared.worker.reserve(&parts.method, length) {
            Ok(room) => reserved.insert(room),
            Err(refusal) => {
                return refuse(respond, shared.worker.refuse(refusal, record), is_head, shared, second).await;
            }
        };
        let reader = Reader::new(stream, length, expectation.clone(), Arc::clone(&shared.bodies));
        Body::http2(reader, &shared.limits).within(room)
    };
    let mut request = Request::from_parts(parts, body);
    request.extensions_mut().insert(shared.peer.clone());
    if let Some(context) = record.context() {
        request.extensions_mut().insert(context.clone());
    }

    let hints = shared.worker.config.early_hints.as_ref();
    if let Some(fields) =
        hints.and_then(|hints| hints.hints(request.method(), request.uri(), request.headers()))
    {
        respond.send_informational(interim(fields))?;
    }
    std::future::poll_fn(|context| service.poll_ready(context)).await.ok()?;
    let response = {
        // Not while sending, which waits for the client.
        let _serving = shared.bodies.serving();
        let mut answering = pin!(service.call(request));
        let (mut due, mut is_told) = (pin!(expectation.due()), false);
        std::future::poll_fn(|context| {
            if let Poll::Ready(response) = answering.as_mut().poll(context) {
                return Poll::Ready(response.ok());
            }
            if !is_told && due.as_mut().poll(context).is_ready() {
                is_told = true;
                if respond.send_informational(Expectation::answer()).is_none() {
                    return Poll::Ready(None);
                }
            }
            // The client has reset the stream, so nobody wants the answer.
            respond.poll_reset(context).map(|_| None)
        })
        .await?
    };
    drop(reserved);

    let (mut parts, body) = response.into_parts();
    let told = record.respond(&mut parts);
    connection_fields::remove(&mut parts.headers);
    complete(&mut parts.headers, shared, second);
    let bodiless =
        is_head || parts.status == StatusCode::NO_CONTENT || parts.status == StatusCode::NOT_MODIFIED;
    let exact = told.as_ref().map_or_else(|| body.size_hint().exact(), |told| Some(told.len() as u64));
    if let Some(exact) = exact.filter(|exact| !bodiless || (is_head && *exact > 0)) {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| exact.into());
    }
    let ends = bodiless || (told.is_none() && body.is_end_stream());
    *answered = true;
    let mut sending = respond.send_response(Response::from_parts(parts, ()), ends)?;
    match told {
        _ if ends => {}
        Some(told) => send(&mut sending, Body::whole(told), shared, record).await?,
        None => send(&mut sending, body, shared, record).await?,
    }
    Some(())
}

/// Sends a complete answer that was already logged, as fast as the client takes it; `None` if that fails.
pub async fn send_whole(
    respond: &mut Responder,
    response: Response<Bytes>,
    shared: &ConnectionContext,
) -> Option<()> {
    let (parts, body) = response.into_parts();
    let ends = body.is_empty();
    let mut sending = respond.send_response(Response::from_parts(parts, ()), ends)?;
    if ends {
        return Some(());
    }
    send(&mut sending, Body::whole(body), shared, &mut RequestRecord::none()).await
}

/// Sends a body; `None` if that fails.
async fn send<B: http_body::Body<Data = Bytes>>(
    sending: &mut Sending,
    body: B,
    shared: &ConnectionContext,
    record: &mut RequestRecord,
) -> Option<()> {
    let mut body = pin!(body);
    let mut pace = Pace::default();
    loop {
        let room = room(sending, &shared.buffer).await?;
        let next = std::future::poll_fn(|context| {
            Poll::Ready(body.as_mut().poll_frame(context).map(|frame| frame.map(Result::ok)))
        });
        let frame = match next.await {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                drop(room);
                woken(sending).await?;
                continue;
            }
        };
        let Some(frame) = frame else {
            return sending.send_data(Bytes::new(), true);
        };
        match frame?.into_data() {
            Ok(data) => {
                let last = body.is_end_stream();
                send_frame(sending, data, last, room, shared, (&mut pace, record)).await?;
                if last {
                    return Some(());
                }
            }
            Err(frame) => return sending.send_trailers(frame.into_trailers().ok()?),
        }
    }
}

/// Sends a frame of a body. `last` says whether it is the last one, and `room` is for its first piece.
async fn send_frame(
    sending: &mut Sending,
    mut data: Bytes,
    last: bool,
    room: Room,
    shared: &ConnectionContext,
    (pace, record): (&mut Pace, &mut RequestRecord),
) -> Option<()> {
    let mut room = Some(room);
    while !data.is_empty() || last {
        let piece = data.split_to(data.len().min(PIECE_BYTES));
        let ends = last && data.is_empty();
        let room = match room.take() {
            Some(room) => room,
            None => self::room(sending, &shared.buffer).await?,
        };
        let mut piece = room.hold(piece);
        loop {
            sending.reserve_capacity(piece.len());
            if sending.capacity() < piece.len() {
                capacity(sending, shared, pace).await?;
            }
            let part = piece.split_to(sending.capacity().min(piece.len()));
            pace.took(part.len());
            record.sent(part.len());
            sending.send_data(part, ends && piece.is_empty())?;
            if piece.is_empty() {
                break;
            }
        }
        if ends {
            break;
        }
    }
    Some(())
}

/// Waits for room in the connection's buffer; `None` if the client has reset the stream.
async fn room(sending: &mut Sending, buffer: &Arc<SendBuffer>) -> Option<Room> {
    loop {
        if let Some(room) = buffer.room() {
            return Some(room);
        }
        let mut freed = pin!(buffer.freed());
        std::future::poll_fn(|context| match freed.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(())),
            Poll::Pending => sending.poll_reset(context).map(|_| None),
        })
        .await?;
    }
}

/// Waits until this task is woken, for whatever reason; `None` if the client has reset the stream.
async fn woken(sending: &mut Sending) -> Option<()> {
    let mut slept = false;
    std::future::poll_fn(|context| match std::mem::replace(&mut slept, true) {
        true => Poll::Ready(Some(())),
        false => sending.poll_reset(context).map(|_| None),
    })
    .await
}

/// How fast a client takes a response that had to wait for it.
#[derive(Default)]
struct Pace {
    /// The deadline for the next piece.
    until: Option<Instant>,
    /// How much of that piece it has taken.
    taken: usize,
}

impl Pace {
    fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken >= MIN_PROGRESS_BYTES {
            *self = Self::default();
        }
    }
}

/// Waits until the client takes more; `None` if it is gone, or takes next to nothing for too long.
async fn capacity(sending: &mut Sending, shared: &ConnectionContext, pace: &mut Pace) -> Option<()> {
    let capacity = std::future::poll_fn(|context| {
        if sending.capacity() > 0 {
            return Poll::Ready(Some(()));
        }
        match sending.poll_capacity(context) {
            Poll::Ready(more) => Poll::Ready(more),
            Poll::Pending => sending.poll_reset(context).map(|_| None),
        }
    });
    let until = *pace.until.get_or_insert_with(|| {
        pace.taken = 0;
        Instant::now() + shared.limits.write_stall
    });
    timeout_at(until, capacity).await.ok()?
}

/// Adds the fields of every response.
fn complete(fields: &mut HeaderMap, shared: &ConnectionContext, second: u64) {
    fields.entry(header::DATE).or_insert_with(|| date::value(second));
    if let Some(alt_svc) = &shared.alt_svc {
        fields.insert(header::ALT_SVC, alt_svc.clone());
    }
}

/// Answers a request that no service sees; `None` if that fails.
async fn refuse(
    respond: &mut Responder,
    mut response: Response<Bytes>,
    is_head: bool,
    shared: &ConnectionContext,
    second: u64,
) -> Option<()> {
    let length = response.body().len().into();
    let fields = response.headers_mut();
    fields.insert(header::DATE, date::value(second));
    fields.insert(header::CONTENT_LENGTH, length);
    if is_head {
        *response.body_mut() = Bytes::new();
    }
    send_whole(respond, response, shared).await
}
