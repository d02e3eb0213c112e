//! A connection's input and output buffers. A thread lends them while they have content.
//!
//! An idle connection holds no buffers. One that has received part of a head, or whose client is slow to take an
//! answer, keeps its own until that is over.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many buffers of each kind a thread keeps. Further ones go back to the allocator.
const SPARE: usize = 16;

/// The largest output buffer that is kept, in bytes.
const SPARE_BYTES: usize = 64 * 1024;

/// Heads are cut from blocks of at least this size. So a few dozen requests cost one allocation, and a long-running
/// request holds at most one block.
const BLOCK_BYTES: usize = 4096;

/// Body pieces up to this size are copied behind the bytes before them, since writing from two places costs more.
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

/// Turns bytes into a buffer that can be sliced without copying.
pub fn share(bytes: &[u8]) -> Bytes {
    THREAD.with_borrow_mut(|pool| {
        let block = pool.block.get_or_insert_default();
        if block.capacity() < bytes.len() {
            // This reuses the same memory once no request refers to it.
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

/// Bytes that were received and not yet used.
#[derive(Default)]
pub struct Input {
    /// Empty, or of the full requested size.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// Starts with bytes that were already received. `size` is as in [`poll_read`](Self::poll_read).
    pub fn with(received: &[u8], size: usize) -> Self {
        let mut input = Self::default();
        if !received.is_empty() {
            input.take(size.max(received.len()));
            input.buffer[..received.len()].copy_from_slice(received);
            input.end = received.len();
        }
        input
    }

    /// The buffered bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The buffered bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether there is no room for more.
    pub fn is_full(&self) -> bool {
        self.end - self.start == self.buffer.len() && !self.buffer.is_empty()
    }

    /// Makes room for `size` bytes in total.
    pub fn grow(&mut self, size: usize) {
        let mut buffer = vec![0; size.max(self.bytes().len())].into_boxed_slice();
        let count = self.bytes().len();
        buffer[..count].copy_from_slice(self.bytes());
        (self.buffer, self.start, self.end) = (buffer, 0, count);
    }

    /// Removes the first `count` bytes.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    /// Receives more into a buffer of `size` bytes. Returns how many bytes came; zero at the end of the stream. Must
    /// not be called when the buffer is full.
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

/// Bytes that are to be sent and not yet written.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    written: usize,
    /// Sent after `bytes`, without copying.
    after: Bytes,
}

impl Output {
    /// How many bytes are to be written.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.written + self.after.len()
    }

    /// The memory of bytes to be written, except those sent without copying.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.after.is_empty()
    }

    /// The buffer to append to.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.take();
        }
        if self.written > 0 || !self.after.is_empty() {
            self.join();
        }
        &mut self.bytes
    }

    /// Makes the buffer this large, so that it grows once at most. It is not kept afterwards.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes.saturating_sub(self.bytes.len()));
    }

    /// Gives back memory beyond this: a kept buffer may be much larger than what is to be written.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.bytes.shrink_to(bytes);
    }

    #[inline]
    fn take(&mut self) {
        if let Some(pool) = THREAD.with_borrow_mut(|pool| pool.outputs.pop()) {
            self.bytes = pool;
        }
    }

    /// Rare, since senders flush large pieces first, and usually all that there is. What is written is removed: for a
    /// client that never takes everything, the buffer would grow as long as there is more.
    #[cold]
    fn join(&mut self) {
        self.bytes.drain(..std::mem::take(&mut self.written));
        let after = std::mem::take(&mut self.after);
        self.bytes.extend_from_slice(&after);
    }

    /// Appends a piece of a body. Returns whether it is large and has to be flushed before more is appended.
    pub fn push(&mut self, piece: Bytes) -> bool {
        let large = piece.len() > COPY_BYTES;
        if large && self.after.is_empty() {
            self.after = piece;
        } else {
            self.buffer().extend_from_slice(&piece);
        }
        large
    }

    /// Writes everything.
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
                    // Release the memory too: the client may take long for what a lower layer still holds of it.
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A socket that takes this many bytes.
    struct Narrow(usize);

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            match std::mem::take(&mut self.0).min(bytes.len()) {
                0 => Poll::Pending,
                count => Poll::Ready(Ok(count)),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn an_output_that_is_never_empty_does_not_grow() {
        let mut output = Output::default();
        output.buffer().extend_from_slice(b"first");
        for _ in 0..10_000 {
            output.buffer().extend_from_slice(&[b'x'; 100]);
            let written =
                output.poll_write(&mut Narrow(100), &mut Context::from_waker(Waker::noop()), |count| {
                    assert_eq!(count, 100)
                });
            assert!(written.is_pending());
            assert_eq!(output.len(), 5);
        }
        assert!(output.held() < 1024, "{}", output.held());
    }
}
