//! Has a fast path answer a plain request.

use std::cell::RefCell;
use std::time::Instant;

use bytes::Bytes;
use request_head::Lines;
use service::panics;

use crate::field_compression::Section;
use crate::http_service::{Exchange, HttpService};
use crate::http1;
use crate::peer::Peer;
use crate::response::{Refusal, RequestRecord, date, request_record};
use crate::worker_context::WorkerContext;

/// A request's client and time, and the worker.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    pub worker: &'a WorkerContext,
    pub peer: &'a Peer,
    /// HTTP/1.1 lines that every answer has.
    pub more: &'a [u8],
}

impl Asking<'_> {
    /// Has the fast path append its HTTP/1.1 answer, or decline. Logs the answer. Returns the body if it is not
    /// appended, and otherwise no bytes. If the fast path panics, the answer is an error.
    #[inline]
    pub fn ask<S: HttpService>(
        self,
        service: &mut S,
        lines: &Lines<'_, '_>,
        answer: &mut Vec<u8>,
    ) -> Option<Bytes> {
        let Self { worker, peer, more } = self;
        let second = worker.registry.clock.second();
        let since = worker.log.as_ref().map(|_| Instant::now());
        let answered = date::with_end(second, |end| {
            let exchange = Exchange { peer, closes: false, more, end };
            panics::catch(|| service.fast(lines, &exchange, answer))
        });
        let body = match answered {
            Ok(answered) => answered?.body,
            Err(panic) => {
                panic.log("stream", &format_args!("{} {}", lines.method, lines.target));
                answer.clear();
                let (parts, body) = Refusal::Panicked.response(&mut RequestRecord::none()).into_parts();
                http1::refusal_head(answer, &parts, body.len() as u64, second);
                if lines.method != "HEAD" {
                    answer.extend_from_slice(&body);
                }
                Bytes::new()
            }
        };
        if let Some(since) = since {
            request_record::logged_at_once(worker.log.as_ref(), peer, lines, (answer, body.len()), since);
        }
        Some(body)
    }
}

/// Lends a thread's buffers for one request: its lines, and an empty buffer for its answer.
pub fn with_buffers<T>(then: impl FnOnce(&mut Section, &mut Vec<u8>) -> T) -> T {
    thread_local! {
        static BUFFERS: RefCell<(Section, Vec<u8>)> = const { RefCell::new((Section::new(), Vec::new())) };
    }
    BUFFERS.with_borrow_mut(|(section, answer)| {
        answer.clear();
        then(section, answer)
    })
}
