//! Bodies that pass through user space, for encryption: read a block at a time into buffers that are used again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::disk::LISTINGS;
use crate::listing;
use crate::parts::Parts;
use crate::site::Site;
use crate::site::file::File;
use crate::site::root::{Identity, Patience};

/// How much is read at once: four TLS records, what a send buffer takes without waiting.
const BLOCK_BYTES: usize = 64 * 1024;

/// Buffers a thread keeps for later.
const KEPT: usize = 16;

/// Blocks of a listing that wait for the client.
const BLOCKS: usize = 2;

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
    Listing(mpsc::Receiver<io::Result<Bytes>>),
}

/// Reads pieces of a file.
#[derive(Debug)]
struct Reader {
    fd: Arc<OwnedFd>,
    identity: Identity,
    pieces: VecDeque<Piece>,
    left: u64,
    /// A read that has to wait for the disk.
    waiting: Option<JoinHandle<io::Result<Bytes>>>,
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

    /// These bytes of a file.
    pub fn file(file: &File, range: Range<u64>) -> Self {
        let left = range.end - range.start;
        Self(Kind::File(Reader::new(file, [Piece::Range(range)].into(), left)))
    }

    /// Several ranges of a file.
    pub fn parts(parts: Parts) -> Self {
        let left = parts.length();
        let file = parts.file();
        let mut pieces = VecDeque::new();
        for (head, range) in parts {
            pieces.push_back(Piece::Bytes(head.into()));
            pieces.extend(range.map(|(_, range)| Piece::Range(range)));
        }
        Self(Kind::File(Reader::new(&file, pieces, left)))
    }

    /// The entries of a directory. It ends in an error where too many are being listed.
    pub fn listing(site: Arc<Site>, request: listing::Request) -> Self {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let (give, blocks) = mpsc::channel(BLOCKS);
        let one_more = |running| (running < LISTINGS).then_some(running + 1);
        if RUNNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            let _ = give.try_send(Err(io::ErrorKind::ResourceBusy.into()));
            return Self(Kind::Listing(blocks));
        }
        tokio::task::spawn_blocking(move || {
            let directory = site.root.directory(&request.path, Patience::Disk).map_err(io::Error::other);
            let written = directory.and_then(|directory| {
                let give = |block: Vec<u8>| give.blocking_send(Ok(block.into())).is_ok();
                listing::write(&request, directory, give).map_err(io::Error::other)
            });
            if let Err(error) = written {
                let _ = give.blocking_send(Err(error));
            }
            RUNNING.fetch_sub(1, Ordering::Relaxed);
        });
        Self(Kind::Listing(blocks))
    }
}

impl Reader {
    fn new(file: &File, pieces: VecDeque<Piece>, left: u64) -> Self {
        Self { fd: Arc::clone(&file.fd), identity: file.identity, pieces, left, waiting: None }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let read = match &mut self.waiting {
            Some(reading) => {
                let read = ready!(Pin::new(reading).poll(context)).map_err(io::Error::other);
                self.waiting = None;
                read.flatten()
            }
            None => match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Bytes(bytes)) => Ok(bytes),
                Some(Piece::Range(range)) => {
                    let end = range.end.min(range.start + BLOCK_BYTES as u64);
                    if end < range.end {
                        self.pieces.push_front(Piece::Range(end..range.end));
                    }
                    let now = range.start..end;
                    match read(&self.fd, self.identity, now.clone(), ReadWriteFlags::NOWAIT) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            let (fd, identity) = (Arc::clone(&self.fd), self.identity);
                            let reading = move || read(&fd, identity, now, ReadWriteFlags::empty());
                            self.waiting = Some(tokio::task::spawn_blocking(reading));
                            return self.poll_next(context);
                        }
                        read => read,
                    }
                }
            },
        };
        if let Ok(bytes) = &read {
            self.left -= bytes.len() as u64;
        }
        Poll::Ready(Some(read))
    }
}

/// Reads a block, which has to be as it was when the file was opened: what comes of a changed file is an error.
fn read(fd: &OwnedFd, identity: Identity, range: Range<u64>, flags: ReadWriteFlags) -> io::Result<Bytes> {
    let mut pooled = Pooled::new(usize::try_from(range.end - range.start).unwrap_or(BLOCK_BYTES));
    let mut at = 0;
    while at < pooled.length {
        let length = pooled.length;
        let buffers = &mut [io::IoSliceMut::new(&mut pooled.buffer[at..length])];
        match preadv2(fd, buffers, range.start + at as u64, flags) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count,
            Err(Errno::INTR) => {}
            // Where the kernel cannot tell whether it would wait, it may.
            Err(Errno::OPNOTSUPP) if flags == ReadWriteFlags::NOWAIT => {
                return read(fd, identity, range, ReadWriteFlags::empty());
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    let (now, _) = Identity::of(fd)?;
    if !identity.has_same_bytes(&now) {
        return Err(io::Error::other("the file changed while it was sent"));
    }
    Ok(Bytes::from_owner(pooled))
}

impl Pooled {
    fn new(length: usize) -> Self {
        let kept = POOL.with_borrow_mut(Vec::pop);
        Self { buffer: kept.unwrap_or_else(|| vec![0; BLOCK_BYTES].into()), length }
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
        // At the end of a thread there is no pool any more.
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
            Kind::Listing(blocks) => ready!(blocks.poll_recv(context)),
        };
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::File(reader) => reader.left == 0,
            Kind::Listing(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::File(reader) => SizeHint::with_exact(reader.left),
            Kind::Listing(_) => SizeHint::default(),
        }
    }
}
