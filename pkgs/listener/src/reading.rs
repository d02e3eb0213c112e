//! A stream whose first bytes are read in a manner of their own.
//!
//! What was received while it was found out what is spoken is given first. A handshake is read record by record, so that
//! nothing behind it is read along: what comes next may be the kernel's to decrypt.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The type, version and length in front of a record (RFC 8446, section 5.1).
const HEADER: usize = 5;

/// Such a stream.
pub struct Reading<S> {
    stream: S,
    first: First,
    /// Whether the first byte has yet to show that this is TLS.
    hello: bool,
}

/// What is read where TLS is spoken is an HTTP request in the clear.
#[derive(Debug, thiserror::Error)]
#[error("a request in the clear where TLS is spoken")]
pub struct NotTls;

impl NotTls {
    /// Whether it is what an error is about.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|error| error.is::<Self>())
    }
}

/// What is read before the stream is read as it comes.
enum First {
    /// Nothing more.
    None,
    /// What was received already.
    Received(BytesMut),
    /// Records, one by one.
    Records(Place),
}

/// Where in a record the reader is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The header, as far as it was read.
    header: [u8; HEADER],
    read: usize,
    /// What is left of the record behind its header.
    left: usize,
}

impl<S> Reading<S> {
    /// After what was received already.
    pub fn after(received: BytesMut, stream: S) -> Self {
        let first = if received.is_empty() { First::None } else { First::Received(received) };
        Self { stream, first, hello: false }
    }

    /// Of TLS: an error where it begins as a request does ([`NotTls`]). Record by record where that is asked for, until it is [opened](Self::open).
    pub fn records(stream: S, one_by_one: bool) -> Self {
        let first = if one_by_one { First::Records(Place::default()) } else { First::None };
        Self { stream, first, hello: true }
    }

    /// Whether all that was read are whole records.
    pub fn is_between(&self) -> bool {
        matches!(self.first, First::Records(place) if place.read == 0 && place.left == 0)
    }

    /// From here on reads whatever there is.
    pub fn open(&mut self) {
        self.first = First::None;
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream alone.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl Place {
    /// How much may be read without going past the record.
    fn most(&self) -> usize {
        if self.left > 0 { self.left } else { HEADER - self.read }
    }

    /// So much was read.
    fn read(&mut self, bytes: &[u8]) {
        if self.left > 0 {
            self.left -= bytes.len();
            return;
        }
        self.header[self.read..][..bytes.len()].copy_from_slice(bytes);
        self.read += bytes.len();
        if self.read == HEADER {
            self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            self.read = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Reading<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buffer.filled().len();
        ready!(self.poll_bytes(context, buffer))?;
        if self.hello
            && let Some(byte) = buffer.filled().get(start)
        {
            self.hello = false;
            // A method. No record has a type like that (RFC 8446, section 5.1).
            if byte.is_ascii_uppercase() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, NotTls)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> Reading<S> {
    fn poll_bytes(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, first, .. } = self;
        match first {
            First::None => Pin::new(stream).poll_read(context, buffer),
            First::Received(received) => {
                let count = received.len().min(buffer.remaining());
                buffer.put_slice(&received.split_to(count));
                if received.is_empty() {
                    *first = First::None;
                }
                Poll::Ready(Ok(()))
            }
            First::Records(place) => {
                let before = buffer.filled().len();
                let room = buffer.initialize_unfilled_to(place.most().min(buffer.remaining()));
                let mut part = ReadBuf::new(room);
                ready!(Pin::new(stream).poll_read(context, &mut part))?;
                let count = part.filled().len();
                buffer.advance(count);
                place.read(&buffer.filled()[before..]);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Reading<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn no_read_goes_past_a_record() {
        let bytes = b"\x16\x03\x01\x00\x03abc\x14\x03\x03\x00\x00\x17\x03\x03\x00\x01drest";
        let mut stream = Reading::records(&bytes[..], true);
        let mut pieces = Vec::new();
        let mut buffer = [0; 64];
        for _ in 0..5 {
            let count = stream.read(&mut buffer).await.expect("bytes");
            pieces.push(buffer[..count].to_vec());
        }
        assert_eq!(pieces, [&bytes[..5], b"abc", &bytes[8..13], &bytes[13..18], b"d"]);
        assert!(stream.is_between());
        stream.open();
        let count = stream.read(&mut buffer).await.expect("bytes");
        assert_eq!(&buffer[..count], b"rest");
    }

    #[tokio::test]
    async fn what_was_received_comes_first() {
        let mut stream = Reading::after(b"abc"[..].into(), &b"def"[..]);
        let mut bytes = [0; 2];
        stream.read_exact(&mut bytes).await.expect("bytes");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.expect("bytes");
        assert_eq!((&bytes[..], &rest[..]), (&b"ab"[..], &b"cdef"[..]));
    }

    #[tokio::test]
    async fn a_record_in_pieces_is_not_between() {
        let bytes = b"\x16\x03\x01\x00\x03abc";
        let mut stream = Reading::records(&bytes[..], true);
        for between in [false, false, false, false, false, false, false, true] {
            stream.read_u8().await.expect("a byte");
            assert_eq!(stream.is_between(), between);
        }
    }
}
