//! Answers plain requests for small files that are in memory, without a request object. [`FastPath`] says which
//! requests it is asked about. Everything else is left to the service.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use listener::{Connection, Exchange, FastAnswer, FastPath};
use request_head::Lines;
use service::panics;

use super::service::TlsService;
use crate::http::head::{Method, RawFields, Request, of_lines};
use crate::response::built::Payload;
use crate::response::common_headers::CommonHeaders;
use crate::worker::context::{WorkerContext, site_of};

/// The longest body, in bytes. HTTP/2 sends it in one frame (RFC 9113, section 4.2), and a connection holds no more of
/// it than of another answer's piece.
const MAX_BYTES: u64 = 16 * 1024;

thread_local! {
    /// The end of the current head.
    static TAIL: RefCell<CommonHeaders> = RefCell::default();
}

impl FastPath for TlsService {
    fn answer(
        &mut self,
        head: &Lines<'_, '_>,
        exchange: &Exchange<'_>,
        out: &mut Vec<u8>,
    ) -> Option<FastAnswer> {
        // The service answers HTTP/1.0 requests, and those whose target contains the host.
        if head.old || !head.target.starts_with('/') {
            return None;
        }
        let request = of_lines(head, RawFields::Lines(head.fields)).ok()?;
        // The service also reads bodies, which would otherwise end their connections.
        let has_body = || request.field("content-length").or(request.field("transfer-encoding")).is_some();
        if !matches!(request.method, Method::Get | Method::Head) || !request.keep && has_body() {
            return None;
        }
        let start = out.len();
        // Until this thread has a context, the service answers, and makes it. Making it needs the date, which the
        // listener has lent to `exchange`.
        let make = || Self::with_open(|context| answer(context, head, request, exchange, out));
        let answered = panics::catch(make).map(Option::flatten).unwrap_or_else(|panic| {
            panic.log("request", &format_args!("{} {}", head.method, head.target));
            Self::with_open(WorkerContext::reset);
            None
        });
        if answered.is_none() {
            out.truncate(start);
        }
        answered
    }
}

/// The answer, or none. If none, `out` may contain a part of an answer.
fn answer(
    context: &mut WorkerContext,
    head: &Lines<'_, '_>,
    mut request: Request<'_>,
    exchange: &Exchange<'_>,
    out: &mut Vec<u8>,
) -> Option<FastAnswer> {
    // Early hints are sent by the listener.
    if context.hints_early() && request.field("sec-fetch-mode").is_some() {
        return None;
    }
    let connection = exchange.connection(request.keep);
    request.keep = connection == Connection::Keep;
    let first = Rc::clone(&context.site);
    let site = site_of(&first, &request)?;
    let answer = TAIL.with_borrow_mut(|tail| {
        tail.write(!request.keep, |end| exchange.end(end, connection));
        let mut builder = context.builder(site);
        builder.tail = tail;
        builder.answer_open(&request, MAX_BYTES, out)
    })?;
    // Errors have the request's id.
    if answer.status >= 400 {
        return None;
    }
    let body = match &answer.payload {
        Payload::None => Bytes::new(),
        Payload::File { file, range, .. } => {
            context.shared.memory_copies.known(file)?.content().slice(range).filter(is_short)?
        }
        Payload::Multipart(_) | Payload::Stream(_) => return None,
    };
    // The rate limit is checked last, since the service checks it again for a declined request.
    let peer = exchange.peer;
    let by_proxy = peer.proxies.as_ref().and_then(|_| exchange.client(head));
    if !context.shared.may_ask(peer.address_rate.as_ref(), by_proxy) {
        return None;
    }
    context.prefetch(site, &answer.payload);
    context.metrics.sent.add(body.len() as u64);
    context.metrics.fast.add(1);
    context.counts(true).answered(answer.status);
    Some(FastAnswer { connection, body })
}

/// Whether the body is short enough for here.
fn is_short(body: &Bytes) -> bool {
    body.len() as u64 <= MAX_BYTES
}
