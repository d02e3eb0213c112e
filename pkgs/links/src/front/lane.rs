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

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::handover::Handover;
use super::page::Refusal;
use super::request::{self, Head};
use super::visit::Visitor;
use super::worker::{Life, Worker};

/// One read in this many is timed for the latency histogram; two looks at the clock cost some 50 ns.
const TIME_EVERY: u64 = 16;

/// After a last answer, what the client still sends is read this long, so that no reset overtakes the
/// answer (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(1);

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
    /// Not for this lane.
    HandOver,
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

/// Serves a connection to its end.
pub async fn run(worker: &Worker, handover: &Handover, mut stream: TcpStream, peer: SocketAddr, life: &Life) {
    let mut kept = Kept::default();
    loop {
        let turn = std::future::poll_fn(|context| turn(worker, context, &mut stream, &mut kept, life)).await;
        let next = match turn {
            Ok(Turn::Done(next)) => next,
            Ok(Turn::Blocked(rest, next)) => {
                life.busy(worker);
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
            Next::Close => return linger(stream).await,
            Next::HandOver => {
                life.handed_over();
                return handover.serve(kept.bytes, stream, peer).await;
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
    loop {
        let before = kept.bytes.len();
        scratch[..before].copy_from_slice(&kept.bytes);
        let mut length = before;
        if !kept.whole {
            let mut buffer = ReadBuf::new(&mut scratch[before..]);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
            length += buffer.filled().len();
            if length == before {
                return Poll::Ready(Ok(Turn::Done(Next::Drop)));
            }
        }
        let started = worker.metrics.is_timed(TIME_EVERY).then(Instant::now);

        let mut bytes = &scratch[..length];
        let mut next = Next::Read;
        kept.whole = false;
        while next == Next::Read && !bytes.is_empty() {
            if out.len() >= FLUSH_BYTES {
                kept.whole = true;
                break;
            }
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
            life.busy(worker);
        }

        let written = write(stream, &mut out)?;
        if let Some(started) = started {
            worker.metrics.latency.record_duration(started.elapsed());
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
                .visit(request.code, &visitor, |outcome| worker.pieces.write(out, tail, &request, outcome));
            worker.metrics.answered(status);
            return (used, if close { Next::Close } else { Next::Read });
        }
        Head::Partial => return (0, Next::Read),
        Head::Other => return (0, Next::HandOver),
        Head::TooLarge => Refusal::HeadTooLarge,
        Head::Bad => Refusal::Malformed,
    };
    let status = worker.pieces.refuse(out, &tail.close, refusal, false, false);
    worker.metrics.answered(status);
    (bytes.len(), Next::Close)
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
async fn linger(mut stream: TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut discard = [0; 1024];
    let drained = async { while matches!(stream.read(&mut discard).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(LINGER, drained).await;
}
