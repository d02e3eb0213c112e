//! Passes a request to the service, and its response to the client.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use h3::quic::SendStream as _;
use h3::server::{RequestResolver, RequestStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use service::panics::{Catch, Panic};
use tokio::time::timeout;

use super::body::BodySource;
use super::context::Context;
use super::error_code::varint;
use super::fast_path::Unsent;
use super::transport;
use crate::body::{Body, Expectation};
use crate::early_hints::interim;
use crate::http_service::HttpService;
use crate::limits::MIN_PROGRESS_BYTES;
use crate::response::Refusal;
use crate::response::RequestRecord;
use crate::response::Room;
use crate::response::connection_fields;
use crate::response::date;

type Resolver<S> = RequestResolver<transport::Connection<S>, Bytes>;

/// Serves one request to its end.
pub(super) async fn serve<S: HttpService>(context: Arc<Context>, mut resolver: Resolver<S>, mut service: S) {
    let limits = &context.worker.config.limits;
    let head = std::future::poll_fn(|cx| resolver.frame_stream.poll_next(cx));
    let Some(head) = within(limits.head_time, head).await else {
        context.worker.counts().timed_out.increment();
        resolver.frame_stream.reset(Code::H3_REQUEST_INCOMPLETE.value());
        return context.count_headless();
    };
    // If it fails, h3 has told the client.
    let Ok(resolved) = resolver.accept_with_frame(head) else { return context.count_headless() };
    let Ok((request, stream)) = resolved.resolve().await else { return };
    let head = (request.method(), request.uri(), request.headers());
    let mut record = RequestRecord::begin(context.worker.log.as_ref(), &context.peer, Version::HTTP_3, head);
    let (send, mut receive) = stream.split();
    let is_head = *request.method() == Method::HEAD;
    let mut answer = Answer { stream: send, context: &context, is_head, sent: 0, ended: false };

    let Some(announced) = announced(&request) else {
        receive.stop_sending(Code::H3_MESSAGE_ERROR);
        return answer.reset(Code::H3_MESSAGE_ERROR);
    };
    if request.headers().len() > limits.fields {
        return answer.refuse(Refusal::HeadTooLarge, &mut record).await;
    }
    if *request.method() == Method::CONNECT {
        return answer.refuse(Refusal::Method, &mut record).await;
    }
    if let Err(refusal) = Refusal::expectation(request.headers()) {
        return answer.refuse(refusal, &mut record).await;
    }
    if announced.is_some_and(|announced| announced > limits.body_bytes) {
        return answer.refuse(Refusal::BodyTooLarge, &mut record).await;
    }
    let expectation = Expectation::of(request.headers());
    // Held until the response starts, since what a service makes of a body may be as large.
    let mut reserved = None;
    let (body, malformed) = match BodySource::begin(receive, announced, expectation.clone()).await {
        Ok(None) => (Body::empty(), None),
        Ok(Some(source)) => {
            let room = match context.worker.reserve(request.method(), announced) {
                Ok(room) => reserved.insert(room),
                Err(refusal) => return answer.refuse(refusal, &mut record).await,
            };
            let malformed = source.malformed();
            (Body::boxed(Box::pin(source), limits).within(room), Some(malformed))
        }
        Err(_) => return answer.reset(Code::H3_MESSAGE_ERROR),
    };
    let method = request.method().clone();
    let path = request.uri().path_and_query().cloned();
    let panicked = |panic: Panic| {
        panic.log("stream", &format_args!("{method} {}", path.as_ref().map_or("", |path| path.as_str())));
    };
    let mut request = request.map(|()| body);
    request.extensions_mut().insert(context.peer.clone());
    if let Some(context) = record.context() {
        request.extensions_mut().insert(context.clone());
    }
    let hints = context.worker.config.early_hints.as_ref();
    if let Some(fields) =
        hints.and_then(|hints| hints.hints(request.method(), request.uri(), request.headers()))
        && !taken(&context, answer.stream.send_response(interim(fields))).await
    {
        return;
    }
    let response = {
        let responding = pin!(respond(&mut service, request));
        let mut responding = Catch::new(responding);
        tokio::select! {
            biased;
            response = &mut responding => response,
            () = expectation.due() => {
                if !taken(&context, answer.stream.send_response(Expectation::answer())).await {
                    return;
                }
                responding.await
            }
        }
    };
    drop(reserved);
    match response {
        // The request was malformed, so its answer must not pass for a valid one.
        _ if malformed.as_deref().is_some_and(is_set) => answer.reset(Code::H3_MESSAGE_ERROR),
        Ok(Some(response)) => {
            // A partially sent response is reset when it is dropped.
            let (mut parts, body) = response.into_parts();
            let sent = match record.respond(&mut parts) {
                Some(told) => {
                    let response = Response::from_parts(parts, Body::whole(told));
                    Catch::new(pin!(answer.send(response, &mut record))).await
                }
                None => {
                    let response = Response::from_parts(parts, body);
                    Catch::new(pin!(answer.send(response, &mut record))).await
                }
            };
            sent.unwrap_or_else(panicked);
        }
        Ok(None) => answer.reset(Code::H3_INTERNAL_ERROR),
        Err(panic) => {
            panicked(panic);
            let response = Refusal::Panicked.response(&mut record);
            answer.tell(response).await;
        }
    }
}

/// Sends the rest of an answer, as fast as the client takes it.
pub(super) async fn send_unsent(context: Arc<Context>, Unsent { mut stream, mut pieces }: Unsent) {
    let length = pieces.iter().map(Bytes::len).sum::<usize>() as u64;
    if taken(&context, std::future::poll_fn(|cx| stream.poll_write(cx, &mut pieces))).await {
        context.stall.took(length);
        stream.finish();
    } else {
        // None of it was recorded as taken.
        stream.reset(varint(Code::H3_INTERNAL_ERROR.value()));
    }
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Relaxed)
}

/// The service's response. If there is none, the service logs why.
async fn respond<S: HttpService>(
    service: &mut S,
    request: Request<Body>,
) -> Option<Response<S::ResponseBody>> {
    std::future::poll_fn(|cx| service.poll_ready(cx).map(|ready| ready.ok())).await?;
    service.call(request).await.ok()
}

/// The length that a request announces, if any. None if the request is malformed (RFC 9114, section 4.1.2).
fn announced(request: &Request<()>) -> Option<Option<u64>> {
    let fields = request.headers();
    if connection_fields::has(fields) {
        return None;
    }
    if fields.get_all(header::TE).iter().any(|te| te != "trailers") {
        return None;
    }
    let mut lengths = fields.get_all(header::CONTENT_LENGTH).iter().map(length);
    let Some(first) = lengths.next() else { return Some(None) };
    let first = first?;
    lengths.all(|other| other == Some(first)).then_some(Some(first))
}

/// RFC 9110, section 8.6: only digits, which the parser alone would not require.
fn length(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The future's result within `time`. Reads the clock only if it is not ready at once.
async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => timeout(time, future).await.ok(),
    }
}

/// Whether the client takes something in time.
async fn taken<E>(context: &Context, sending: impl Future<Output = Result<(), E>>) -> bool {
    let mut sending = pin!(sending);
    let mut now = async || std::future::poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
    let mut sent = now().await;
    if sent.is_pending() && context.window.grow() {
        sent = now().await;
    }
    let sent = match sent {
        Poll::Ready(sent) => sent,
        Poll::Pending => {
            let _waiting = context.stall.wait();
            let Ok(sent) = timeout(context.worker.config.limits.write_stall, sending).await else {
                return false;
            };
            sent
        }
    };
    sent.is_ok()
}

/// Waits until this task is woken, for whatever reason.
async fn woken() {
    let mut slept = false;
    std::future::poll_fn(|_| match std::mem::replace(&mut slept, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// The response's stream.
struct Answer<'a> {
    stream: RequestStream<transport::SendStream, Bytes>,
    context: &'a Context,
    /// Whether the request wants no body.
    is_head: bool,
    /// Bytes of the body that were sent.
    sent: u64,
    /// Whether the client was told the end.
    ended: bool,
}

impl Answer<'_> {
    /// Sends a complete response, its body as fast as the client takes it.
    async fn send<B>(mut self, response: Response<B>, record: &mut RequestRecord)
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (mut parts, body) = response.into_parts();
        let bodyless = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let second = self.context.worker.registry.clock.second();
        prepare(&mut parts.headers, (!bodyless).then(|| body.size_hint().exact()).flatten(), second);
        parts.version = Version::HTTP_3;
        let silent = self.is_head || bodyless || body.is_end_stream();
        if !taken(self.context, self.stream.send_response(Response::from_parts(parts, ()))).await {
            return;
        }
        if !silent && !self.body(body, record).await {
            return;
        }
        self.finish().await;
    }

    /// Answers a request that no service sees.
    async fn refuse(self, refusal: Refusal, record: &mut RequestRecord) {
        let response = self.context.worker.refuse(refusal, record);
        self.tell(response).await;
    }

    /// Sends a refusal, which was logged when it was made.
    async fn tell(self, response: Response<Bytes>) {
        self.send(response.map(Body::whole), &mut RequestRecord::none()).await;
    }

    /// Sends a body. False if it cannot be sent completely.
    async fn body(&mut self, body: impl http_body::Body<Data = Bytes>, record: &mut RequestRecord) -> bool {
        let mut body = pin!(body);
        loop {
            let Some(room) = self.room().await else { return false };
            let next = std::future::poll_fn(|cx| {
                Poll::Ready(body.as_mut().poll_frame(cx).map(|frame| frame.map(Result::ok)))
            });
            let frame = match next.await {
                Poll::Ready(Some(Some(frame))) => frame,
                Poll::Ready(Some(None)) => return false,
                Poll::Ready(None) => return true,
                Poll::Pending => {
                    drop(room);
                    woken().await;
                    continue;
                }
            };
            // The frame has room until the stream has all of it.
            let _room = room;
            match frame.into_data() {
                Ok(mut data) => {
                    while !data.is_empty() {
                        let piece = data.split_to(data.len().min(MIN_PROGRESS_BYTES));
                        let length = piece.len() as u64;
                        if !taken(self.context, self.stream.send_data(transport::payload(piece))).await {
                            return false;
                        }
                        record.sent(length as usize);
                        self.sent += length;
                        self.context.stall.took(length);
                    }
                }
                Err(frame) => {
                    let Ok(trailers) = frame.into_trailers() else { continue };
                    return taken(self.context, self.stream.send_trailers(trailers)).await;
                }
            }
        }
    }

    /// Waits for room for a frame; `None` if the client takes nothing for too long.
    async fn room(&self) -> Option<Room> {
        let Context { buffer, stall, worker, .. } = self.context;
        if let Some(room) = buffer.room() {
            return Some(room);
        }
        let _waiting = stall.wait();
        let room = async {
            loop {
                buffer.freed().await;
                if let Some(room) = buffer.room() {
                    return room;
                }
            }
        };
        timeout(worker.config.limits.write_stall, room).await.ok()
    }

    async fn finish(mut self) {
        self.ended = self.stream.finish().await.is_ok();
    }

    fn reset(mut self, code: Code) {
        self.ended = true;
        self.stream.stop_stream(code);
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        // Dropping it would otherwise end the stream as if it were complete.
        if !self.ended {
            self.context.stall.reset(self.sent, self.context.window.bytes());
            self.stream.stop_stream(Code::H3_INTERNAL_ERROR);
        }
    }
}

/// Removes fields that HTTP/3 forbids, and adds those of every response.
fn prepare(fields: &mut HeaderMap, length: Option<u64>, second: u64) {
    connection_fields::remove(fields);
    if let Some(length) = length {
        fields.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    fields.entry(header::DATE).or_insert_with(|| date::value(second));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&'static str, &str)]) -> Request<()> {
        let mut request = Request::new(());
        for (name, value) in fields {
            request.headers_mut().append(*name, value.parse().expect("a value"));
        }
        request
    }

    #[test]
    fn lengths_are_read_and_malformed_requests_seen() {
        for (fields, expected) in [
            (&[][..], Some(None)),
            (&[("content-length", "0")], Some(Some(0))),
            (&[("content-length", "5"), ("content-length", "5")], Some(Some(5))),
            (&[("te", "trailers")], Some(None)),
            (&[("content-length", "5"), ("content-length", "6")], None),
            (&[("content-length", "+5")], None),
            (&[("content-length", "")], None),
            (&[("content-length", "99999999999999999999")], None),
            (&[("connection", "close")], None),
            (&[("keep-alive", "1")], None),
            (&[("proxy-connection", "close")], None),
            (&[("transfer-encoding", "chunked")], None),
            (&[("upgrade", "h2c")], None),
            (&[("te", "gzip")], None),
        ] {
            assert_eq!(announced(&request(fields)), expected, "{fields:?}");
        }
    }

    #[test]
    fn responses_lose_the_fields_of_connections() {
        let mut fields = request(&[("connection", "close"), ("transfer-encoding", "chunked"), ("x", "y")])
            .headers()
            .clone();
        prepare(&mut fields, Some(7), 784_111_777);
        assert_eq!(fields.remove("date").expect("a date"), "Sun, 06 Nov 1994 08:49:37 GMT");
        let left: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(left, [("x", &b"y"[..]), ("content-length", b"7")]);
    }
}
