//! What a connection reads into and writes from, lent by its thread while there is something in it.
//!
//! An idle connection holds none of it. One that has received part of a head, or whose client is slow to take
//! an answer, holds its own until that is over.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Buffers of a kind that a thread keeps; further ones go back to the allocator.
const SPARE: usize = 16;

/// The largest output buffer that is kept.
const SPARE_BYTES: usize = 64 * 1024;

/// Heads are cut from blocks of at least this size: the allocator is asked once for a few dozen requests, and
/// a request that is held for long holds no more than a block.
const BLOCK_BYTES: usize = 4096;

/// A piece of a body up to this size is copied behind what goes before it; writing from two places costs more.
const COPY_BYTES: usize = 8 * 1024;

thread_local! {
    static THREAD: RefCell<BufferPool> = const { RefCell::new(BufferPool { inputs: Vec::new(), outputs: Vec::new(), block: None, fields: None }) };
}

struct BufferPool {
    inputs: Vec<Box<[u8]>>,
    outputs: Vec<Vec<u8>>,
    block: Option<BytesMut>,
    fields: Option<HeaderMap>,
}

/// The bytes as something to cut pieces from without copying.
pub fn share(bytes: &[u8]) -> Bytes {
    THREAD.with_borrow_mut(|pool| {
        let block = pool.block.get_or_insert_default();
        if block.capacity() < bytes.len() {
            // Takes the same memory again where no request refers to it any more.
            block.reserve(bytes.len().max(BLOCK_BYTES));
        }
        block.extend_from_slice(bytes);
        block.split().freeze()
    })
}

/// An empty map of fields.
pub fn take_fields() -> HeaderMap {
    THREAD.with_borrow_mut(|pool| pool.fields.take()).unwrap_or_default()
}

/// Keeps a map's memory for the next request.
pub fn give_fields(mut fields: HeaderMap) {
    fields.clear();
    THREAD.with_borrow_mut(|pool| pool.fields = Some(fields));
}

/// What was received and not yet used.
#[derive(Default)]
pub struct Input {
    /// Empty, or all of the size asked for.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// What was received already; `size` is as of [`poll_read`](Self::poll_read).
    pub fn with(received: &[u8], size: usize) -> Self {
        let mut input = Self::default();
        if !received.is_empty() {
            input.take(size.max(received.len()));
            input.buffer[..received.len()].copy_from_slice(received);
            input.end = received.len();
        }
        input
    }

    /// What is there.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing more has room.
    pub fn is_full(&self) -> bool {
        self.end - self.start == self.buffer.len() && !self.buffer.is_empty()
    }

    /// Makes room for `size` bytes together.
    pub fn grow(&mut self, size: usize) {
        let mut buffer = vec![0; size.max(self.bytes().len())].into_boxed_slice();
        let count = self.bytes().len();
        buffer[..count].copy_from_slice(self.bytes());
        (self.buffer, self.start, self.end) = (buffer, 0, count);
    }

    /// Forgets the first `count` bytes.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    /// Receives more, into a buffer of `size` bytes, and says how many bytes came: none at the end of the
    /// stream. Not to be called when it is full.
    pub fn poll_read(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
        size: usize,
    ) -> Poll<io::Result<usize>> {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            if self.buffer.is_empty() {
                self.take(size);
            }
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let mut buffer = ReadBuf::new(&mut self.buffer[self.end..]);
        let read = Pin::new(io).poll_read(context, &mut buffer);
        let count = buffer.filled().len();
        self.end += count;
        if self.is_empty() {
            self.give();
        }
        ready!(read)?;
        Poll::Ready(Ok(count))
    }

    #[inline]
    fn take(&mut self, size: usize) {
        let pool = THREAD.with_borrow_mut(|pool| pool.inputs.pop());
        self.buffer = pool.filter(|pool| pool.len() == size).unwrap_or_else(|| vec![0; size].into());
    }

    #[inline]
    fn give(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        (self.start, self.end) = (0, 0);
        THREAD.with_borrow_mut(|pool| {
            if pool.inputs.len() < SPARE && !buffer.is_empty() {
                pool.inputs.push(buffer);
            }
        });
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.give();
    }
}

/// What is to be sent and not yet written.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    written: usize,
    /// Sent after `bytes`, from where it is.
    after: Bytes,
}

impl Output {
    /// How many bytes are to be written.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.written + self.after.len()
    }

    /// The memory of what is to be written, without what is sent from where it is.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.after.is_empty()
    }

    /// Where to append what is to be sent.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.take();
        }
        if !self.after.is_empty() {
            self.join();
        }
        &mut self.bytes
    }

    #[inline]
    fn take(&mut self) {
        if let Some(pool) = THREAD.with_borrow_mut(|pool| pool.outputs.pop()) {
            self.bytes = pool;
        }
    }

    /// Rare: whoever sends large pieces flushes them first.
    #[cold]
    fn join(&mut self) {
        let after = std::mem::take(&mut self.after);
        self.bytes.extend_from_slice(&after);
    }

    /// Appends a piece of a body, and says whether it is large, and so to be flushed before more is appended.
    pub fn push(&mut self, piece: Bytes) -> bool {
        let large = piece.len() > COPY_BYTES;
        if large && self.after.is_empty() {
            self.after = piece;
        } else {
            self.buffer().extend_from_slice(&piece);
        }
        large
    }

    /// Writes all of it.
    pub fn poll_write(
        &mut self,
        io: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
        mut progress: impl FnMut(usize),
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let bytes = &self.bytes[self.written..];
            let count = if self.after.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(context, bytes))?
            } else {
                let both = [IoSlice::new(bytes), IoSlice::new(&self.after)];
                ready!(Pin::new(&mut *io).poll_write_vectored(context, &both))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            progress(count);
            let first = count.min(bytes.len());
            if count > first {
                self.after.advance(count - first);
                if self.after.is_empty() {
                    // Not even its memory is held on to: a client may take long for what a layer below still has of it.
                    self.after = Bytes::new();
                }
            }
            self.written += first;
            if self.written == self.bytes.len() {
                self.give();
            }
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn give(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.written = 0;
        bytes.clear();
        THREAD.with_borrow_mut(|pool| {
            if pool.outputs.len() < SPARE && (1..=SPARE_BYTES).contains(&bytes.capacity()) {
                pool.outputs.push(bytes);
            }
        });
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.give();
    }
}
