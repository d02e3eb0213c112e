//! Bodies that pass through user space for encryption: read block by block into reused buffers, or taken from a copy of
//! a frequently requested file.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use origin::Fetched;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::sync::oneshot;

use super::cold::ColdRead;
use crate::cache::copy::FileCopy;
use crate::cache::file::OpenFile;
use crate::cache::memory_copy::MemoryCopy;
use crate::disk::ring_file::SharedFile;
use crate::disk::threads::{OneOf, read_ahead};
use crate::metrics::WorkerMetrics;
use crate::response::multipart::MultipartRanges;
use crate::site::origin_file::OriginFile;
use crate::site::root::FileIdentity;
use crate::stream::pool::{Block, BlockStream};
use crate::stream::source::{BlockSource, Error};
use crate::threads::interest::Waiter;
use crate::worker::context::WorkerContext;
use crate::worker::shared::SharedState;

/// How much is read at once: two TLS records. Once encrypted, a slow client's answer holds this much.
const BLOCK_BYTES: usize = 32 * 1024;

/// Pieces up to this length get memory of their own, of exactly their size.
const SHORT_BYTES: usize = BLOCK_BYTES / 2;

/// The buffers a thread keeps for later, 4 MiB; with HTTP/3, one comes back when its bytes are acknowledged.
const KEPT: usize = 128;

/// How much the kernel is asked to read ahead when a file turns out to be cold, if threads read.
const AHEAD_BYTES: u64 = 2 << 20;

thread_local! {
    static POOL: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// The body of an answer.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Option<Bytes>),
    File(Reader),
    Stream(StreamBlocks),
}

/// Reads pieces of a file.
#[derive(Debug)]
struct Reader {
    fd: Arc<OwnedFd>,
    /// The expected state; none while blocks of the file are still missing.
    identity: Option<FileIdentity>,
    /// The object with those blocks.
    origin: Option<OriginFile>,
    /// Bytes of it for which there was no room in the file, and their offset.
    passed: Option<Box<(u64, Bytes)>>,
    /// A fetch of missing data.
    fetching: Option<oneshot::Receiver<Result<Fetched, origin::Error>>>,
    copy: Option<Arc<FileCopy<MemoryCopy>>>,
    pieces: VecDeque<Piece>,
    left: u64,
    /// A part of it that this thread's ring reads.
    cold: Option<ColdRead>,
    /// A read on a thread that may wait for the disk.
    waiting: Option<oneshot::Receiver<io::Result<Bytes>>>,
    /// Who waits for such reads; none before the first one.
    waiter: Option<Waiter>,
    /// The permit to have the file read ahead, and how far that has been done.
    ahead: Option<(OneOf, u64)>,
    shared: Arc<SharedState>,
    metrics: Arc<WorkerMetrics>,
}

/// The blocks of a listing.
#[derive(Debug)]
struct StreamBlocks {
    stream: BlockStream,
    /// The next block, while it is being written.
    waiting: Option<oneshot::Receiver<Block>>,
    ended: bool,
    metrics: Arc<WorkerMetrics>,
}

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    Range(Range<u64>),
}

/// A buffer that goes back to the pool of the thread that drops it.
struct Pooled {
    buffer: Box<[u8]>,
    length: usize,
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self(Kind::Whole(None))
    }

    /// These bytes.
    pub fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// A range of a file.
    pub fn file(context: &WorkerContext, file: &OpenFile, range: Range<u64>) -> Self {
        let left = range.end - range.start;
        Self(Kind::File(Reader::new(context, file, [Piece::Range(range)].into(), left)))
    }

    /// Several ranges of a file.
    pub fn parts(context: &WorkerContext, parts: MultipartRanges) -> Self {
        let left = parts.length();
        let file = parts.file();
        let mut pieces = VecDeque::new();
        for (head, range) in parts {
            pieces.push_back(Piece::Bytes(head.into()));
            pieces.extend(range.map(|(_, range)| Piece::Range(range)));
        }
        Self(Kind::File(Reader::new(context, &file, pieces, left)))
    }

    /// A stream; none if there are too many.
    pub fn stream(context: &WorkerContext, source: Box<dyn BlockSource>) -> Option<Self> {
        let stream = context.shared.streams.open(source)?;
        let metrics = Arc::clone(&context.metrics);
        Some(Self(Kind::Stream(StreamBlocks { stream, waiting: None, ended: false, metrics })))
    }
}

impl Reader {
    fn new(context: &WorkerContext, file: &OpenFile, pieces: VecDeque<Piece>, left: u64) -> Self {
        Self {
            fd: Arc::clone(file.fd()),
            identity: file.incomplete().is_none().then_some(file.identity),
            origin: file.incomplete().cloned(),
            passed: None,
            fetching: None,
            copy: context.shared.memory_copies.copy_of(file, &context.shared.disk, context.tick, context.now),
            pieces,
            left,
            cold: None,
            waiting: None,
            waiter: None,
            ahead: None,
            shared: Arc::clone(&context.shared),
            metrics: Arc::clone(&context.metrics),
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let read = match (&mut self.cold, &mut self.waiting) {
            (Some(cold), _) => {
                let mut pooled = Pooled::new(BLOCK_BYTES);
                let read = ready!(cold.poll(&mut pooled.buffer, context));
                self.cold.take_if(|cold| cold.left() == 0);
                read.map(|count| {
                    pooled.length = count;
                    pooled.bytes()
                })
            }
            (None, Some(reading)) => {
                let read = ready!(Pin::new(reading).poll(context));
                self.waiting = None;
                read.unwrap_or_else(|_| Err(io::Error::other("the threads that read have ended")))
            }
            (None, None) => match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Bytes(bytes)) => Ok(bytes),
                Some(Piece::Range(range)) => {
                    let mut end = range.end.min(range.start + BLOCK_BYTES as u64);
                    match self.poll_origin(&range, &mut end, context) {
                        Poll::Pending => {
                            self.pieces.push_front(Piece::Range(range));
                            return Poll::Pending;
                        }
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            self.pieces.clear();
                            return Poll::Ready(Some(Err(self.cut(error))));
                        }
                    }
                    if end < range.end {
                        self.pieces.push_front(Piece::Range(end..range.end));
                    }
                    let block = range.start..end;
                    let kept = self.kept(&block);
                    let read = kept.map_or_else(
                        || read(&self.fd, self.identity, block.clone(), ReadWriteFlags::NOWAIT),
                        Ok,
                    );
                    match read {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            self.cold = self.begin_cold(block.start..range.end);
                            if self.cold.is_none() {
                                self.waiting = Some(self.wait_for(block, range.end));
                            } else if end < range.end {
                                self.pieces.pop_front();
                            }
                            self.metrics.cold.add(1);
                            return self.poll_next(context);
                        }
                        read => read,
                    }
                }
            },
        };
        match &read {
            Ok(bytes) => {
                self.left -= bytes.len() as u64;
                self.metrics.sent.add(bytes.len() as u64);
            }
            Err(_) => return Poll::Ready(Some(read.map_err(|error| self.cut(error)))),
        }
        Poll::Ready(Some(read))
    }

    /// Counts that the answer ends early here.
    fn cut(&self, error: io::Error) -> io::Error {
        tracing::debug!(%error, "an answer was cut");
        self.metrics.cut.add(1);
        error
    }

    /// The block, if it is in memory.
    fn kept(&self, block: &Range<u64>) -> Option<Bytes> {
        if let Some((start, bytes)) = self.passed.as_deref() {
            return Some(bytes.slice((block.start - start) as usize..(block.end - start) as usize));
        }
        self.copy.as_ref().and_then(|copy| copy.content().slice(block))
    }

    /// Makes sure that the start of a range is in the file, and moves `end` to where the available bytes end.
    fn poll_origin(
        &mut self,
        range: &Range<u64>,
        end: &mut u64,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(origin) = &self.origin else { return Poll::Ready(Ok(())) };
        loop {
            if let Some(fetching) = &mut self.fetching {
                let fetched = ready!(Pin::new(fetching).poll(context));
                self.fetching = None;
                match fetched.unwrap_or(Err(origin::Error::Busy)) {
                    Ok(Fetched::Stored) => {}
                    Ok(Fetched::Passed(start, bytes)) => self.passed = Some(Box::new((start, bytes))),
                    Err(error) => return Poll::Ready(Err(io::Error::other(error))),
                }
            }
            if let Some((start, bytes)) = self.passed.as_deref() {
                let passed = *start..*start + bytes.len() as u64;
                if passed.contains(&range.start) {
                    *end = passed.end.min(*end);
                    return Poll::Ready(Ok(()));
                }
                self.passed = None;
            }
            let available = origin.available(&(range.start..*end));
            if available > range.start {
                *end = available;
                return Poll::Ready(Ok(()));
            }
            let (give, fetching) = oneshot::channel();
            // The receiver may be gone.
            origin.fetch(range.clone(), move |fetched| drop(give.send(fetched)));
            self.metrics.cold.add(1);
            self.fetching = Some(fetching);
        }
    }

    /// Makes this thread's ring read the range, if there is one. Files from an origin are read by threads.
    fn begin_cold(&self, range: Range<u64>) -> Option<ColdRead> {
        let identity = self.identity.filter(|_| self.origin.is_none())?;
        let file = SharedFile::new(Arc::clone(&self.fd), identity);
        ColdRead::begin(&self.shared, &self.metrics, file, range)
    }

    /// Makes a thread that may wait for the disk read a block, and read ahead from there to `end`.
    fn wait_for(&mut self, block: Range<u64>, end: u64) -> oneshot::Receiver<io::Result<Bytes>> {
        let (give, waiting) = oneshot::channel();
        let (fd, identity) = (Arc::clone(&self.fd), self.identity);
        if self.ahead.is_none() {
            self.ahead = self.shared.disk.may_read_ahead().map(|right| (right, 0));
        }
        let mut ahead = 0..0;
        if let Some((_, read)) = &mut self.ahead {
            ahead = block.start.max(*read)..end.min(block.start + AHEAD_BYTES);
            *read = ahead.end.max(*read);
        }
        // The body may end while this is queued.
        let interest = self.waiter.get_or_insert_default().interest();
        self.shared.disk.run_for(interest, move |_| {
            read_ahead(&fd, ahead);
            // The receiver may be gone.
            let _ = give.send(read(&fd, identity, block, ReadWriteFlags::empty()));
        });
        waiting
    }
}

impl StreamBlocks {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // Requested only now, when there is room for it.
        let waiting = self.waiting.get_or_insert_with(|| {
            let (give, waiting) = oneshot::channel();
            self.stream.next(move |block| drop(give.send(block)));
            waiting
        });
        let block = ready!(Pin::new(waiting).poll(context));
        self.waiting = None;
        Poll::Ready(match block.unwrap_or(Err(Error::Panicked)) {
            Ok(Some(block)) => {
                self.metrics.sent.add(block.len() as u64);
                Some(Ok(block.into()))
            }
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                self.metrics.cut.add(1);
                Some(Err(io::Error::other(error)))
            }
        })
    }
}

/// Reads a block of a file that must not have changed since it was opened; otherwise it is an error.
fn read(
    fd: &OwnedFd,
    identity: Option<FileIdentity>,
    range: Range<u64>,
    flags: ReadWriteFlags,
) -> io::Result<Bytes> {
    let mut pooled = Pooled::new(usize::try_from(range.end - range.start).unwrap_or(BLOCK_BYTES));
    let mut at = 0;
    while at < pooled.length {
        let length = pooled.length;
        let buffers = &mut [io::IoSliceMut::new(&mut pooled.buffer[at..length])];
        match preadv2(fd, buffers, range.start + at as u64, flags) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count,
            Err(Errno::INTR) => {}
            // If the kernel can't tell whether it would wait, it may wait.
            Err(Errno::OPNOTSUPP) if flags == ReadWriteFlags::NOWAIT => {
                return read(fd, identity, range, ReadWriteFlags::empty());
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    if let Some(identity) = identity
        && !identity.has_same_bytes(&FileIdentity::of(fd)?.0)
    {
        return Err(io::Error::other("the file changed while it was sent"));
    }
    Ok(pooled.bytes())
}

impl Pooled {
    fn new(length: usize) -> Self {
        let kept = POOL.with_borrow_mut(Vec::pop);
        Self { buffer: kept.unwrap_or_else(|| vec![0; BLOCK_BYTES].into()), length }
    }

    /// Its bytes. If they are few, in memory of their own: a client that takes nothing may have a hundred pieces, and
    /// what counts against its budget is their length, not the buffer's.
    fn bytes(self) -> Bytes {
        match self.length {
            ..=SHORT_BYTES => Bytes::copy_from_slice(self.as_ref()),
            _ => Bytes::from_owner(self),
        }
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // At the end of a thread, there is no pool any more.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < KEPT {
                pool.push(buffer);
            }
        });
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match &mut self.0 {
            Kind::Whole(bytes) => bytes.take().map(Ok),
            Kind::File(reader) => ready!(reader.poll_next(context)),
            Kind::Stream(listing) => ready!(listing.poll_next(context)),
        };
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::File(reader) => reader.left == 0,
            Kind::Stream(listing) => listing.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::File(reader) => SizeHint::with_exact(reader.left),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::threads::tests::occupy;
    use crate::metrics::ListenerKind;
    use crate::worker::shared::tests::{load, serving};

    #[test]
    fn a_read_for_a_body_that_has_ended_is_not_done() {
        let place = tempfile::tempdir().expect("a directory");
        let shared = serving(load(place.path(), None));
        let end = occupy(&shared.disk);
        let metrics = shared.metrics.worker(ListenerKind::Tls);
        let mut file = tempfile::tempfile().expect("a file");
        io::Write::write_all(&mut file, b"text").expect("written");
        let fd = Arc::new(OwnedFd::from(file));
        let [mut left, mut stays] = [(); 2].map(|()| Reader {
            fd: Arc::clone(&fd),
            identity: None,
            origin: None,
            passed: None,
            fetching: None,
            copy: None,
            pieces: VecDeque::new(),
            left: 4,
            cold: None,
            waiting: None,
            waiter: None,
            ahead: None,
            shared: Arc::clone(&shared),
            metrics: Arc::clone(&metrics),
        });
        let (none, text) = (left.wait_for(0..4, 4), stays.wait_for(0..4, 4));
        drop(left);
        end.wait();
        let text = text.blocking_recv().expect("it is read").expect("the file");
        assert_eq!(text, &b"text"[..]);
        assert!(none.blocking_recv().is_err(), "nothing is read");
    }

    #[test]
    fn a_short_piece_does_not_keep_a_whole_buffer() {
        let mut file = tempfile::tempfile().expect("a file");
        io::Write::write_all(&mut file, &[7; BLOCK_BYTES]).expect("written");
        let fd = OwnedFd::from(file);
        let piece =
            |length: usize| read(&fd, None, 0..length as u64, ReadWriteFlags::empty()).expect("bytes");
        let kept = || POOL.with_borrow(Vec::len);
        for short in [1, SHORT_BYTES] {
            let piece = piece(short);
            assert_eq!((piece.len(), kept()), (short, 1));
        }
        let long = piece(SHORT_BYTES + 1);
        assert_eq!((long.len(), kept()), (SHORT_BYTES + 1, 0));
        drop(long);
        assert_eq!(kept(), 1);
    }
}
