//! Cold files that this process encrypts: each thread of the TLS listener reads them with its own ring.
//!
//! Blocks stay with the ring, and requested data is copied out of them piece by piece. A client that takes nothing
//! therefore keeps no block that others wait for; its data is read again. A thread makes its ring when it is first
//! needed. If it gets none, threads read, as without rings.

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

/// How long a stream may go without being asked, and without waiting, before it gives up blocks that others wait for,
/// since its client takes nothing.
const IDLE: Duration = Duration::from_millis(20);

/// How many streams are checked, when others wait for blocks, before those get another turn.
const RECLAIMS: usize = 1024;

thread_local! {
    static READER: RefCell<ThreadReader> = const { RefCell::new(ThreadReader::Untried) };
}

/// What reads for this thread.
enum ThreadReader {
    /// Nothing has been requested yet.
    Untried,
    /// There is none, or it failed.
    None,
    Ring(Box<RingReader>),
}

/// A thread's ring, and the streams it reads for.
struct RingReader {
    ring: Ring,
    streams: BTreeMap<Token, Stream>,
    ended: VecDeque<Completion>,
    /// The stream from which the search for unused blocks continues.
    hand: Token,
    /// When that was last done.
    reclaimed: Instant,
    /// Wakes the task that drives the ring.
    wanted: Arc<Notify>,
    metrics: Arc<WorkerMetrics>,
}

/// What is being read for one body.
struct Stream {
    parts: RingStream,
    file: SharedFile,
    waker: Option<Waker>,
    /// Whether it has asked for a first block, and waits for its turn.
    is_queued: bool,
    /// When it was last asked for data.
    asked: Instant,
    /// The ring's error.
    failed: Option<Errno>,
}

/// A part of a file that the ring of the requesting thread reads.
#[derive(Debug)]
pub struct ColdRead {
    /// Unique across all threads.
    token: Token,
    left: u64,
}

impl ColdRead {
    /// Starts reading; none if this thread has no ring.
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

    /// How many bytes are still to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Copies the next bytes into `buffer`, and returns how many.
    ///
    /// # Errors
    /// Those of the read, and when the file has changed.
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
        // At the end of a thread there is no ring any more, and nobody waiting.
        let stream = READER.try_with(|reader| {
            let ThreadReader::Ring(reader) = &mut *reader.borrow_mut() else { return None };
            let stream = reader.streams.remove(&self.token);
            if stream.as_ref().is_some_and(|stream| stream.is_queued) {
                reader.ring.leave(self.token);
            }
            reader.wake_if_wanted();
            stream
        });
        // Dropped here, so that anything else that ends with it can use the reader.
        drop(stream);
    }
}

impl RingReader {
    /// Makes this thread's ring, and starts the task that drives it.
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
                // There was one when it was tried at the start.
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
                // Checked after reading, and before the data is sent.
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

    /// Wakes the task if there is something to do that no read announces.
    fn wake_if_wanted(&self) {
        if self.ring.may_serve() || self.ring.is_short() || self.ring.is_refused() {
            self.wanted.notify_one();
        }
    }

    /// Processes finished reads, and gives blocks to streams that wait for one. Returns the wakers to call, and after
    /// what time there will be work that nothing announces.
    fn turn(&mut self) -> io::Result<(Vec<Waker>, Option<Duration>)> {
        let mut wakers = Vec::new();
        self.ring.turn(&mut self.ended)?;
        for Completion { token, number, read } in self.ended.drain(..) {
            // Otherwise nobody waits for it any more, and its block becomes free.
            let Some(stream) = self.streams.get_mut(&token) else { continue };
            if stream.parts.ended(number, read, &stream.file) {
                wakers.extend(stream.waker.take());
            }
        }
        self.reclaim();
        // As many are served as wait now, even if some have left: a stream that gets no block goes to the end again.
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

    /// If streams wait for blocks, takes those that other streams hold but don't use.
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
    /// Reads ahead as far as there is room.
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

/// Drives this thread's ring.
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
                // Anything that finishes from here on makes it ready again.
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

/// The ring can't continue: the streams it reads for are told, and threads read from here on.
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
        // All blocks.
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
