//! What the fast path does not know: one request of any form, which is its connection's last.
//!
//! Read by the same strict parser, answered by the same
//! [`WorkerContext::visit`](super::context::WorkerContext::visit). Everything it waits for has a deadline,
//! and it holds no more than the head, of at most [`super::MAX_HEAD_BYTES`], and a small form.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use request_head::Framing;
use request_head::chunked::{Chunked, Found};
use service::proxies::{Proxies, Source};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::page::Refusal;
use super::render;
use super::request::{General, Method, Request};
use super::unlock::MAX_FORM_BYTES;
use super::visit::Visitor;
use super::worker::Worker;

/// Lets a client send the body it waits with (RFC 9110, section 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Answers the request that `received` starts with. What follows it is not looked at: the answer says that the
/// connection closes.
///
/// # Errors
/// Where the client has gone, or stands still for too long: there is nobody to answer.
pub async fn serve(
    worker: &Worker,
    received: &[u8],
    stream: &mut TcpStream,
    peer: SocketAddr,
) -> io::Result<()> {
    let mut out = Vec::new();
    let status = match General::read(received) {
        Ok(Some(request)) => answer(worker, &request, received, stream, peer, &mut out).await?,
        // The fast path has read a whole head.
        Ok(None) => return Ok(()),
        Err(error) => refuse(worker, &mut out, error.into(), false, false),
    };
    worker.context.metrics.answered(status);
    write(worker, stream, &out).await
}

async fn answer(
    worker: &Worker,
    request: &General<'_>,
    received: &[u8],
    stream: &mut TcpStream,
    peer: SocketAddr,
    out: &mut Vec<u8>,
) -> io::Result<u16> {
    let Request { head, html, .. } = request.visit;
    Ok(match request.method {
        Method::Follow => visit(worker, request, false, out),
        Method::Other => refuse(worker, out, Refusal::Method, html, head),
        Method::Unlock => match unlock(worker, request, received, stream, peer).await? {
            Ok(()) => visit(worker, request, true, out),
            Err(refusal) => {
                let tail = worker.tail.borrow();
                render::deny(worker.pieces.to(out, &tail.close), &request.visit, refusal)
            }
        },
    })
}

fn visit(worker: &Worker, request: &General<'_>, trusted: bool, out: &mut Vec<u8>) -> u16 {
    let Request { head, referrer, agent, .. } = request.visit;
    let visitor = Visitor { head, referrer, agent, trusted };
    let tail = worker.tail.borrow();
    worker.context.visit(&request.code, &visitor, |outcome| {
        render::render(worker.pieces.to(out, &tail.close), &request.visit, trusted, outcome)
    })
}

fn refuse(worker: &Worker, out: &mut Vec<u8>, refusal: Refusal, html: bool, head: bool) -> u16 {
    worker.pieces.refuse(out, &worker.tail.borrow().close, refusal, html, head)
}

/// Checks the password that a request brings.
async fn unlock(
    worker: &Worker,
    request: &General<'_>,
    received: &[u8],
    stream: &mut TcpStream,
    peer: SocketAddr,
) -> io::Result<Result<(), Refusal>> {
    let (head, behind) = received.split_at(request.length);
    let locked = match worker.context.locked(&request.code) {
        Ok(locked) => locked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if matches!(request.framing, Framing::Length(length) if length > MAX_FORM_BYTES as u64) {
        return Ok(Err(Refusal::Body));
    }
    if request.expects_continue && behind.is_empty() {
        write(worker, stream, CONTINUE).await?;
    }
    // One deadline for the whole form, however it drips.
    let patience = worker.context.front.settings.head_timeout;
    let form = match timeout(patience, form(worker, request.framing, behind, stream)).await {
        Ok(form) => form?,
        Err(_) => {
            worker.context.metrics.timed_out.add(1);
            Err(Refusal::Timeout)
        }
    };
    Ok(match form {
        Ok(form) => {
            let visitor = visitor(&worker.context.front.settings.proxies, peer, head);
            locked.unlock(&worker.context.front, &form, visitor).await
        }
        Err(refusal) => Err(refusal),
    })
}

/// Where a visitor is whose request has this head.
fn visitor(proxies: &Proxies, peer: SocketAddr, head: &[u8]) -> IpAddr {
    let remote = peer.ip();
    match proxies.source(Some(remote)) {
        Source::Fields => proxies.client_of_head(Some(remote), head).unwrap_or(remote),
        _ => remote,
    }
}

/// The body, of which `behind` was received with the head.
async fn form(
    worker: &Worker,
    framing: Framing,
    behind: &[u8],
    stream: &mut TcpStream,
) -> io::Result<Result<Vec<u8>, Refusal>> {
    let mut body = Body { bytes: Vec::new(), framing, chunked: Chunked::new() };
    let mut done = body.take(behind);
    while let Ok(false) = done {
        done = std::future::poll_fn(|context| {
            let mut scratch = worker.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch[..]);
            std::task::ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
            match buffer.filled() {
                [] => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                bytes => Ok(body.take(bytes)),
            }
            .into()
        })
        .await?;
    }
    Ok(done.map(|_| body.bytes))
}

/// A body as far as it was received.
struct Body {
    bytes: Vec<u8>,
    framing: Framing,
    chunked: Chunked,
}

impl Body {
    /// Takes what was received next; answers whether the body is whole. What follows it is dropped.
    fn take(&mut self, received: &[u8]) -> Result<bool, Refusal> {
        if let Framing::Length(length) = self.framing {
            let left = usize::try_from(length).map_err(|_| Refusal::Body)? - self.bytes.len();
            self.bytes.extend_from_slice(&received[..received.len().min(left)]);
            return Ok(received.len() >= left);
        }
        let mut rest = received;
        loop {
            match self.chunked.decode(rest).map_err(|_| Refusal::Malformed)? {
                Found::End { .. } => return Ok(true),
                Found::More { .. } => return Ok(false),
                Found::Data { skip, length } => {
                    if self.bytes.len() + length > MAX_FORM_BYTES {
                        return Err(Refusal::Body);
                    }
                    self.bytes.extend_from_slice(&rest[skip..skip + length]);
                    rest = &rest[skip + length..];
                }
            }
        }
    }
}

/// The body that pieces of `step` bytes make: of a length of 64, or chunked. None where it is not whole.
///
/// # Errors
/// What is wrong with it.
#[doc(hidden)]
pub fn body(bytes: &[u8], chunked: bool, step: usize) -> Result<Option<Vec<u8>>, Refusal> {
    let framing = if chunked { Framing::Chunked } else { Framing::Length(64) };
    let mut body = Body { bytes: Vec::new(), framing, chunked: Chunked::new() };
    for piece in bytes.chunks(step) {
        if body.take(piece)? {
            return Ok(Some(body.bytes));
        }
    }
    Ok(None)
}

/// Writes in time, or not at all.
async fn write(worker: &Worker, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let patience: Duration = worker.context.front.settings.head_timeout;
    timeout(patience, stream.write_all(bytes)).await.unwrap_or_else(|_| {
        worker.context.metrics.timed_out.add(1);
        Err(io::ErrorKind::TimedOut.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_where_its_head_says_and_is_bounded() {
        let long = format!("401\r\n{}\r\n0\r\n\r\n", "x".repeat(0x401));
        let (exact, more) = ("x".repeat(64), "x".repeat(70));
        for (chunked, bytes, expected) in [
            (false, &*exact, Ok(Some(&*exact))),
            (false, &*more, Ok(Some(&*exact))),
            (false, "ab", Ok(None)),
            (true, "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\nGET", Ok(Some("abcd"))),
            (true, "3\r\nabc\r\n", Ok(None)),
            (true, "x", Err(Refusal::Malformed)),
            (true, &*long, Err(Refusal::Body)),
        ] {
            for step in 1..=bytes.len() {
                let expected = expected.map(|body| body.map(|body| body.as_bytes().to_vec()));
                assert_eq!(body(bytes.as_bytes(), chunked, step), expected, "{bytes:.20?} by {step}");
            }
        }
    }
}
