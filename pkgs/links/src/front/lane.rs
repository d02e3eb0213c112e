//! The fast lane: one read, one write and no buffer kept per plain visit.
//!
//! A readable connection is read into the worker's scratch buffer, its requests are answered into the
//! worker's output buffer, and that is written, all in one poll. Only a head that came in pieces, or an
//! answer the client is slow to take, gives a connection memory of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use listener::proxy::{self, Header};
use service::panics::{self, Catch};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::page::Refusal;
use super::request::{self, Head};
use super::slow_path;
use super::visit::Visitor;
use super::worker::{Life, Worker};

/// One read in this many is timed for the latency histogram; two looks at the clock cost some 50 ns.
const TIME_EVERY: u64 = 16;

/// After a last answer, what the client still sends is read this long, so that no reset overtakes the
/// answer (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(1);

/// The longest part of a request's line that is logged, in bytes.
const LOGGED_BYTES: usize = 256;

/// Answers are written once this much has gathered, however long the pipeline.
const FLUSH_BYTES: usize = 32 * 1024;

/// How a turn of a connection ended.
enum Turn {
    /// The client is slow: these bytes are yet to be written, then go on so.
    Blocked(Vec<u8>, Next),
    /// Everything is written.
    Done(Next),
}

/// How a connection goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The client closed it.
    Drop,
    /// The last answer is written.
    Close,
    /// Not for this lane: the slow path answers it, and the connection closes.
    Slow,
    /// Wait for more.
    Read,
}

/// What a connection keeps between turns.
#[derive(Default)]
struct Kept {
    /// Received, but not yet answered; most often nothing, else part of a head.
    bytes: Vec<u8>,
    /// Whether whole requests may be among them, which only wait for the answers before them to be written.
    whole: bool,
}

/// The same of a connection that begins with a PROXY header, which has as long as a head.
pub async fn run_proxied(worker: &Worker, mut stream: TcpStream, peer: SocketAddr, life: &Life) {
    match proxy::read(&mut stream).await {
        Ok(Header::Local) => run(worker, stream, peer, life).await,
        Ok(Header::Proxied { remote, .. }) => run(worker, stream, remote, life).await,
        Err(error) => {
            tracing::debug!(%error, "a connection was refused");
            worker.context.metrics.proxy_refused.add(1);
        }
    }
}

/// Serves a connection to its end.
pub async fn run(worker: &Worker, mut stream: TcpStream, peer: SocketAddr, life: &Life) {
    let mut kept = Kept::default();
    loop {
        let turn = std::future::poll_fn(|context| {
            let turned = || turn(worker, context, &mut stream, &mut kept, life);
            // A panic ends this connection and no other: what it may have left half done is its own, or cleared
            // by the next turn.
            panics::catch(turned).unwrap_or_else(|panic| {
                panic.log("connection", &line(&worker.scratch.borrow()[worker.at.get()..]));
                Poll::Ready(Err(io::ErrorKind::Other.into()))
            })
        });
        let next = match turn.await {
            Ok(Turn::Done(next)) => next,
            Ok(Turn::Blocked(rest, next)) => {
                life.writing(worker);
                let Some(_held) = worker.hold(rest.len()) else { return };
                if stream.write_all(&rest).await.is_err() {
                    return;
                }
                next
            }
            Err(_) => return,
        };
        match next {
            Next::Drop => return,
            Next::Read => {}
            Next::Close => return linger(worker, stream).await,
            Next::Slow => {
                life.slow();
                // Boxed, so that no other connection has room for it.
                let serving = Box::pin(slow_path::serve(worker, &kept.bytes, &mut stream, peer));
                match Catch::new(serving).await {
                    Ok(Ok(())) => linger(worker, stream).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a connection ended early"),
                    Err(panic) => panic.log("connection", &line(&kept.bytes)),
                }
                return;
            }
        }
    }
}

/// Reads and answers until nothing more has arrived.
fn turn(
    worker: &Worker,
    context: &mut Context<'_>,
    stream: &mut TcpStream,
    kept: &mut Kept,
    life: &Life,
) -> Poll<io::Result<Turn>> {
    let mut scratch = worker.scratch.borrow_mut();
    let mut out = worker.out.borrow_mut();
    out.clear();
    if life.is_over() {
        let status =
            worker.pieces.refuse(&mut out, &worker.tail.borrow().close, Refusal::Timeout, false, false);
        worker.context.metrics.answered(status);
        let next = if write(stream, &mut out)?.is_some() { Next::Drop } else { Next::Close };
        return Poll::Ready(Ok(Turn::Done(next)));
    }
    loop {
        let before = kept.bytes.len();
        scratch[..before].copy_from_slice(&kept.bytes);
        let mut length = before;
        if !kept.whole {
            let mut buffer = ReadBuf::new(&mut scratch[before..]);
            let read = Pin::new(&mut *stream).poll_read(context, &mut buffer);
            if read.is_pending() && before > 0 {
                life.wake_by(context.waker());
            }
            ready!(read)?;
            length += buffer.filled().len();
            if length == before {
                return Poll::Ready(Ok(Turn::Done(Next::Drop)));
            }
        }
        let started = worker.context.metrics.is_timed(TIME_EVERY).then(Instant::now);

        let mut bytes = &scratch[..length];
        let mut next = Next::Read;
        kept.whole = false;
        while next == Next::Read && !bytes.is_empty() {
            if out.len() >= FLUSH_BYTES {
                kept.whole = true;
                break;
            }
            worker.at.set(length - bytes.len());
            let (used, then) = answer(worker, bytes, &mut out);
            bytes = &bytes[used..];
            next = then;
            if used == 0 {
                break;
            }
        }
        kept.bytes.clear();
        kept.bytes.extend_from_slice(bytes);
        if bytes.is_empty() {
            kept.bytes.shrink_to(0);
            life.idle(worker);
        } else if before == 0 || bytes.len() < length {
            // Not extended by later pieces: a head has one deadline, however slowly it drips.
            life.reading(worker);
        }

        let written = write(stream, &mut out)?;
        if let Some(started) = started {
            worker.context.metrics.latency.record_duration(started.elapsed());
        }
        match (written, next) {
            (Some(rest), next) => return Poll::Ready(Ok(Turn::Blocked(rest, next))),
            (None, Next::Read) => {}
            (None, next) => return Poll::Ready(Ok(Turn::Done(next))),
        }
    }
}

/// Answers the request that `bytes` start with. Returns how many bytes that took; none where the head is
/// not whole yet.
fn answer(worker: &Worker, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Next) {
    let tail = worker.tail.borrow();
    let refusal = match request::parse(bytes) {
        Head::Visit(request, used) => {
            let close = request.close || worker.draining.get();
            let tail = if close { &tail.close } else { &tail.keep };
            let visitor = Visitor {
                head: request.head,
                referrer: request.referrer,
                agent: request.agent,
                trusted: false,
            };
            let status = worker
                .context
                .visit(request.code, &visitor, |outcome| worker.pieces.write(out, tail, &request, outcome));
            worker.context.metrics.answered(status);
            return (used, if close { Next::Close } else { Next::Read });
        }
        Head::Partial => return (0, Next::Read),
        Head::Other => return (0, Next::Slow),
        Head::Refused(error) => error.into(),
    };
    let status = worker.pieces.refuse(out, &tail.close, refusal, false, false);
    worker.context.metrics.answered(status);
    (bytes.len(), Next::Close)
}

/// The line of the request that `bytes` start with, as it may be logged.
fn line(bytes: &[u8]) -> impl std::fmt::Display + '_ {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    line[..line.len().min(LOGGED_BYTES)].escape_ascii()
}

/// Writes what the socket takes and empties `out`; returns what it did not take.
fn write(stream: &TcpStream, out: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    if out.is_empty() {
        return Ok(None);
    }
    let written = match stream.try_write(out) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => {
            out.clear();
            return Err(error);
        }
    };
    let rest = (written < out.len()).then(|| out[written..].to_vec());
    out.clear();
    Ok(rest)
}

/// Closes after the last answer, without a reset that would take it back.
async fn linger(worker: &Worker, mut stream: TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let drained = std::future::poll_fn(|context| {
        let mut scratch = worker.scratch.borrow_mut();
        loop {
            let mut buffer = ReadBuf::new(&mut scratch[..]);
            let read = ready!(Pin::new(&mut stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    });
    let _ = tokio::time::timeout(LINGER, drained).await;
}
