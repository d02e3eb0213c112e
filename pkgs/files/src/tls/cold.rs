//! Cold files that this process encrypts: each thread of the TLS listener reads them with its own ring.
//!
//! Blocks stay with the ring, and requested data is copied out of them piece by piece. So a client that takes nothing
//! keeps no block that others wait for; its data is read again. A thread makes its ring when first needed. If it gets
//! none, threads read, as without rings.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::{Bound, Range};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use service::panics;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::disk::ring::{Completion, REFUSED_FOR, Ring, Token};
use crate::disk::ring_file::SharedFile;
use crate::metrics::WorkerMetrics;
use crate::transfer::ring_stream::{NextBlock, RingStream};
use crate::worker::shared::SharedState;

/// Whoever has not been asked for anything for so long, and was not waiting, lets go of blocks that others wait for: his
/// client takes nothing.
const IDLE: Duration = Duration::from_millis(20);

/// Streams that are looked at, where others wait for blocks, before these have another turn.
const RECLAIMS: usize = 1024;

thread_local! {
    static READER: RefCell<ThreadReader> = const { RefCell::new(ThreadReader::Untried) };
}

/// What reads for this thread.
enum ThreadReader {
    /// Nobody has asked yet.
    Untried,
    /// There is none, or it failed.
    None,
    Ring(Box<RingReader>),
}

/// A thread's ring, and those it reads for.
struct RingReader {
    ring: Ring,
    streams: BTreeMap<Token, Stream>,
    ended: VecDeque<Completion>,
    /// The stream from which on others are looked for that keep blocks.
    hand: Token,
    /// When that was done last.
    reclaimed: Instant,
    /// Tells the task that keeps this going.
    wanted: Arc<Notify>,
    metrics: Arc<WorkerMetrics>,
}

/// What is read for one body.
struct Stream {
    parts: RingStream,
    file: SharedFile,
    waker: Option<Waker>,
    /// Whether it has asked for a first block, and waits for its turn.
    is_queued: bool,
    /// When it was last asked for.
    asked: Instant,
    /// The ring's error.
    failed: Option<Errno>,
}

/// A part of a file that is read by the ring of the thread that asked for it.
#[derive(Debug)]
pub struct ColdRead {
    /// No other has it, on any thread.
    token: Token,
    left: u64,
}

impl ColdRead {
    /// Begins to read; none where this thread has no ring.
    pub fn begin(
        shared: &Arc<SharedState>,
        metrics: &Arc<WorkerMetrics>,
        file: SharedFile,
        range: Range<u64>,
    ) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let memory = shared.settings.ring?;
        READER.with_borrow_mut(|reader| {
            if matches!(reader, ThreadReader::Untried) {
                *reader = RingReader::start(memory, metrics);
            }
            let ThreadReader::Ring(reader) = reader else { return None };
            let admitted = shared.ghosts.admit(file.place(), &range);
            let left = range.end - range.start;
            let parts = RingStream::new(&reader.ring, &file, range, admitted);
            let token = NEXT.fetch_add(1, Ordering::Relaxed);
            let stream =
                Stream { parts, file, waker: None, is_queued: false, asked: Instant::now(), failed: None };
            reader.streams.insert(token, stream);
            Some(Self { token, left })
        })
    }

    /// Bytes that are yet to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Copies of what comes next into `buffer`, and returns how much that is.
    ///
    /// # Errors
    /// Those of the read, and where the file is not what it was.
    pub fn poll(&mut self, buffer: &mut [u8], context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let polled = READER.with_borrow_mut(|reader| match reader {
            ThreadReader::Ring(reader) => reader.poll(self.token, buffer, context),
            _ => Poll::Ready(Err(gone())),
        });
        if let Poll::Ready(Ok(count)) = &polled {
            self.left -= *count as u64;
        }
        polled
    }
}

impl Drop for ColdRead {
    fn drop(&mut self) {
        // At the end of a thread there is no ring any more, nor anybody who waits.
        let stream = READER.try_with(|reader| {
            let ThreadReader::Ring(reader) = &mut *reader.borrow_mut() else { return None };
            let stream = reader.streams.remove(&self.token);
            if stream.as_ref().is_some_and(|stream| stream.is_queued) {
                reader.ring.leave(self.token);
            }
            reader.wake_if_wanted();
            stream
        });
        // Whoever else ends with it finds the ring free.
        drop(stream);
    }
}

impl RingReader {
    /// Makes the ring of this thread, and has it kept going.
    fn start(memory: usize, metrics: &Arc<WorkerMetrics>) -> ThreadReader {
        let made = Ring::new(memory).and_then(|ring| Ok((ring.wait()?, ring)));
        match made {
            Ok((ready, ring)) => {
                let wanted = Arc::<Notify>::default();
                tokio::spawn(keep(ready, Arc::clone(&wanted)));
                ThreadReader::Ring(Box::new(Self {
                    ring,
                    streams: BTreeMap::new(),
                    ended: VecDeque::new(),
                    hand: 0,
                    reclaimed: Instant::now(),
                    wanted,
                    metrics: Arc::clone(metrics),
                }))
            }
            Err(error) => {
                // There was one when it was tried at start.
                tracing::warn!(%error, "no io_uring for a thread of the TLS listener: threads read");
                ThreadReader::None
            }
        }
    }

    fn poll(
        &mut self,
        token: Token,
        buffer: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let Some(stream) = self.streams.get_mut(&token) else { return Poll::Ready(Err(gone())) };
        stream.asked = Instant::now();
        stream.read_ahead(&mut self.ring, token);
        let next = match stream.failed {
            Some(errno) => Err(errno),
            None => stream.parts.front(),
        };
        let polled = match next {
            Ok(NextBlock::There) => {
                // After the reading, and before anything of it is sent.
                if stream.file.is_intact() {
                    let count = stream.parts.take(buffer);
                    stream.read_ahead(&mut self.ring, token);
                    Poll::Ready(Ok(count))
                } else {
                    Poll::Ready(Err(changed()))
                }
            }
            Ok(NextBlock::Reading) => {
                stream.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Ok(NextBlock::Short) => Poll::Ready(Err(changed())),
            Err(errno) => Poll::Ready(Err(errno.into())),
        };
        if let Err(error) = self.ring.submit() {
            return Poll::Ready(Err(error));
        }
        self.wake_if_wanted();
        polled
    }

    /// Has the task take its turn where there is something to do that no read tells of.
    fn wake_if_wanted(&self) {
        if self.ring.may_serve() || self.ring.is_short() || self.ring.is_refused() {
            self.wanted.notify_one();
        }
    }

    /// Takes in what has ended, and gives blocks to those who wait for some. Returns whom to wake, and
    /// after which time there is something to do of which nobody tells.
    fn turn(&mut self) -> io::Result<(Vec<Waker>, Option<Duration>)> {
        let mut wakers = Vec::new();
        self.ring.turn(&mut self.ended)?;
        for Completion { token, number, read } in self.ended.drain(..) {
            // Else nobody waits for it any more, and its block is free with it.
            let Some(stream) = self.streams.get_mut(&token) else { continue };
            if stream.parts.ended(number, read, &stream.file) {
                wakers.extend(stream.waker.take());
            }
        }
        self.reclaim();
        // As many as wait now, whoever of them has left: who gets no block is the last again.
        for _ in 0..self.ring.waiting() {
            let Some(token) = self.ring.serve() else { break };
            let Some(stream) = self.streams.get_mut(&token) else { continue };
            stream.is_queued = false;
            stream.read_ahead(&mut self.ring, token);
            if stream.failed.is_some() {
                wakers.extend(stream.waker.take());
            }
        }
        self.ring.submit()?;
        self.metrics.ring_reads.store(self.ring.begun(), Ordering::Relaxed);
        let again =
            if self.ring.is_refused() { Some(REFUSED_FOR) } else { self.ring.is_short().then_some(IDLE) };
        Ok((wakers, again))
    }

    /// Where some wait for blocks that others have, and do not ask for, these let go of theirs.
    fn reclaim(&mut self) {
        let now = Instant::now();
        if !self.ring.is_short() || now.duration_since(self.reclaimed) < IDLE {
            return;
        }
        self.reclaimed = now;
        for _ in 0..self.streams.len().min(RECLAIMS) {
            if !self.ring.is_short() {
                return;
            }
            let after = (Bound::Excluded(self.hand), Bound::Unbounded);
            let next = self.streams.range(after).next().or_else(|| self.streams.iter().next());
            let Some(token) = next.map(|(token, _)| *token) else { return };
            let Some(stream) = self.streams.get_mut(&token) else { return };
            self.hand = token;
            if stream.waker.is_none() && now.duration_since(stream.asked) >= IDLE {
                stream.parts.release_blocks();
            }
        }
    }
}

impl Stream {
    /// Has as much read ahead as there is room for.
    fn read_ahead(&mut self, ring: &mut Ring, token: Token) {
        if self.is_queued || self.failed.is_some() {
            return;
        }
        match self.parts.read_ahead(ring, token) {
            Ok(()) => self.is_queued = self.parts.is_bare(),
            Err(errno) => self.failed = Some(errno),
        }
    }
}

/// Keeps the ring of this thread going.
async fn keep(ready: AsyncFd<OwnedFd>, wanted: Arc<Notify>) {
    let mut again = None;
    loop {
        let later = async {
            match again {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = ready.readable() => match ended {
                // What ends from here on makes it ready anew.
                Ok(mut ended) => ended.clear_ready(),
                Err(error) => return end(&error),
            },
            () = wanted.notified() => {}
            () = later => {}
        }
        let turn = || {
            READER.with_borrow_mut(|reader| match reader {
                ThreadReader::Ring(reader) => reader.turn().map(Some),
                _ => Ok(None),
            })
        };
        let turned = panics::catch(turn).unwrap_or_else(|panic| {
            panic.log("job", "reading by io_uring");
            Err(io::Error::other("a panic"))
        });
        match turned {
            Ok(Some((wakers, later))) => {
                wakers.into_iter().for_each(Waker::wake);
                again = later;
            }
            Ok(None) => return,
            Err(error) => return end(&error),
        }
    }
}

/// The ring cannot go on: those it reads for are told so, and threads read from here on.
fn end(error: &io::Error) {
    tracing::warn!(%error, "io_uring failed on a thread of the TLS listener: threads read");
    let ended = READER.with_borrow_mut(|reader| std::mem::replace(reader, ThreadReader::None));
    if let ThreadReader::Ring(reader) = ended {
        reader.streams.into_values().filter_map(|stream| stream.waker).for_each(Waker::wake);
    }
}

fn gone() -> io::Error {
    io::Error::other("the ring of this thread has ended")
}

fn changed() -> io::Error {
    io::Error::other("the file changed while it was sent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::blocks::Block;
    use crate::disk::ring::for_test;
    use crate::site::root::FileIdentity;

    #[test]
    fn those_who_left_keep_nobody_waiting() {
        let Some(mut ring) = for_test("those_who_left_keep_nobody_waiting", 0) else { return };
        // All there are.
        let blocks: Vec<Block> = (10..).map_while(|token| ring.block(token, 0, 1)).collect();
        assert_eq!((ring.waiting(), ring.begun()), (1, 0));
        assert!((1..4).all(|token| ring.block(token, 0, 1).is_none()), "three more, who leave");
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        file.set_len(1).expect("room");
        let fd = Arc::new(OwnedFd::from(file));
        let (identity, _) = FileIdentity::of(&*fd).expect("a file");
        let file = SharedFile::new(fd, identity);
        let parts = RingStream::new(&ring, &file, 0..1, true);
        let stream =
            Stream { parts, file, waker: None, is_queued: false, asked: Instant::now(), failed: None };
        let mut reader = RingReader {
            ring,
            streams: BTreeMap::from([(4, stream)]),
            ended: VecDeque::new(),
            hand: 0,
            reclaimed: Instant::now(),
            wanted: Arc::default(),
            metrics: Arc::default(),
        };
        let stay = reader.streams.get_mut(&4).expect("it was put there");
        stay.read_ahead(&mut reader.ring, 4);
        assert!(stay.is_queued);
        drop(blocks);
        reader.turn().expect("a turn");
        assert_eq!(reader.ring.begun(), 1, "whoever stayed has a block");
    }
}
