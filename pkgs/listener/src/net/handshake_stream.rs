//! A stream that treats its first reads and writes differently.
//!
//! Bytes that were received to find out the protocol are returned first. A handshake is read record by record if
//! nothing after it may be read along, because the kernel may have to decrypt what follows. Otherwise, session tickets
//! at its end wait for the next write, which saves a system call and a packet: no client needs them earlier.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The length of a record's type, version and length (RFC 8446, section 5.1).
const HEADER: usize = 5;

/// The type of an encrypted record.
const ENCRYPTED: u8 = 23;

/// Longer than an encrypted alert, shorter than a ticket.
const ALERT: usize = 64;

/// The most pieces that are written in one call with what has waited.
const PIECES: usize = 16;

/// A stream with a handshake.
pub struct HandshakeStream<S> {
    stream: S,
    first: First,
    /// Whether the first byte still has to show that this is TLS.
    hello: bool,
    handshake: Handshake,
    /// Tickets that wait for the next write.
    tickets: Vec<u8>,
}

/// The state of a handshake, as far as writes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    /// It has nothing that may wait, or its state is unknown.
    Unknown,
    /// Nothing was sent, or nothing was received since.
    Sent,
    /// Everything was sent, and then something was received.
    Received,
}

/// The error of an HTTP request without TLS where TLS is expected.
#[derive(Debug, thiserror::Error)]
#[error("a request in the clear where TLS is spoken")]
pub struct NotTls;

impl NotTls {
    /// Whether `error` is this one.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|error| error.is::<Self>())
    }
}

/// What is read before the stream is read normally.
enum First {
    /// Nothing more.
    None,
    /// Bytes that were already received.
    Received(BytesMut),
    /// Single records.
    Records(Record),
}

/// The position within a record.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// The header as far as it was read.
    header: [u8; HEADER],
    read: usize,
    /// How much of the record after its header is left.
    left: usize,
}

impl<S> HandshakeStream<S> {
    /// A stream after bytes that were already received.
    pub fn with_prefix(received: BytesMut, stream: S) -> Self {
        let first = if received.is_empty() { First::None } else { First::Received(received) };
        Self { stream, first, hello: false, handshake: Handshake::Unknown, tickets: Vec::new() }
    }

    /// A TLS stream. Fails with [`NotTls`] if it starts like a request. If `one_by_one`, reads single records until the
    /// handshake [is over](Self::end_handshake).
    pub fn tls(stream: S, one_by_one: bool) -> Self {
        let (first, handshake) = match one_by_one {
            // Tickets have to be sent before the keys are given away.
            true => (First::Records(Record::default()), Handshake::Unknown),
            false => (First::None, Handshake::Sent),
        };
        Self { stream, first, hello: true, handshake, tickets: Vec::new() }
    }

    /// Whether only whole records were read.
    pub fn is_between_records(&self) -> bool {
        matches!(self.first, First::Records(place) if place.read == 0 && place.left == 0)
    }

    /// The handshake is over: from here on, reads return whatever there is, and no write waits.
    pub fn end_handshake(&mut self) {
        self.first = First::None;
        self.handshake = Handshake::Unknown;
    }

    /// Whether these are session tickets: the first encrypted output after everything was sent and an answer came.
    /// Earlier output of a server starts with an unencrypted record (RFC 8446, section 4), and in TLS 1.2 the end of
    /// the handshake is not encrypted.
    fn are_tickets(&self, pieces: &[IoSlice<'_>]) -> bool {
        let first = || pieces.iter().find_map(|piece| piece.first());
        self.handshake == Handshake::Received
            && first() == Some(&ENCRYPTED)
            && pieces.iter().map(|piece| piece.len()).sum::<usize>() > ALERT
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream itself, mutable.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Removes the wrapper.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl Record {
    /// How much may be read without going past the record.
    fn most(&self) -> usize {
        if self.left > 0 { self.left } else { HEADER - self.read }
    }

    /// Records what was read.
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

impl<S: AsyncRead + Unpin> AsyncRead for HandshakeStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buffer.filled().len();
        ready!(self.poll_bytes(context, buffer))?;
        if self.handshake == Handshake::Sent && buffer.filled().len() > start {
            self.handshake = Handshake::Received;
        }
        if self.hello
            && let Some(byte) = buffer.filled().get(start)
        {
            self.hello = false;
            // The first letter of a method. No record has such a type (RFC 8446, section 5.1).
            if byte.is_ascii_uppercase() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, NotTls)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> HandshakeStream<S> {
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

impl<S: AsyncWrite + Unpin> HandshakeStream<S> {
    /// Writes what has waited together with `pieces`. Returns how much of these was written.
    fn poll_along(&mut self, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let Self { stream, tickets, .. } = self;
        while !tickets.is_empty() {
            let mut all = [IoSlice::new(tickets); PIECES];
            let count = pieces.len().min(PIECES - 1);
            all[1..=count].copy_from_slice(&pieces[..count]);
            let written = ready!(Pin::new(&mut *stream).poll_write_vectored(context, &all[..=count]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if let Some(more) = written.checked_sub(tickets.len()) {
                // Frees its memory, since this happens once.
                *tickets = Vec::new();
                if more > 0 || pieces.is_empty() {
                    return Poll::Ready(Ok(more));
                }
            } else {
                tickets.drain(..written);
            }
        }
        if pieces.is_empty() {
            return Poll::Ready(Ok(0));
        }
        Pin::new(stream).poll_write_vectored(context, pieces)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HandshakeStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.handshake == Handshake::Unknown && self.tickets.is_empty() {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.handshake == Handshake::Unknown {
            return this.poll_along(context, pieces);
        }
        if this.are_tickets(pieces) {
            let before = this.tickets.len();
            pieces.iter().for_each(|piece| this.tickets.extend_from_slice(piece));
            return Poll::Ready(Ok(this.tickets.len() - before));
        }
        let written = this.poll_along(context, pieces);
        let length = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        // The rest of a partial write may start with any byte.
        let whole = matches!(written, Poll::Ready(Ok(count)) if count == length);
        this.handshake = if whole { Handshake::Sent } else { Handshake::Unknown };
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Tickets wait beyond the handshake's own flush.
        if self.handshake == Handshake::Unknown {
            ready!(self.poll_along(context, &[]))?;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_along(context, &[]))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A client that sends "x" at each read, and takes this much of each write.
    struct Client {
        most: usize,
        writes: Vec<Vec<u8>>,
    }

    impl AsyncRead for Client {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buffer.put_slice(b"x");
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Client {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(context, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).take(self.most);
            let bytes: Vec<u8> = bytes.collect();
            let count = bytes.len();
            self.writes.push(bytes);
            Poll::Ready(Ok(count))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    const HELLO: &[u8] = b"\x16hello";
    const TICKETS: &[u8] = &[ENCRYPTED; ALERT + 1];

    /// What is written during a handshake and after it. The server sends `hello` after the client's first byte, `end`
    /// after its second, and `more` after the handshake.
    async fn written(
        most: usize,
        one_by_one: bool,
        hello: &[u8],
        end: &[u8],
        more: &[&[u8]],
    ) -> Vec<Vec<u8>> {
        let mut stream = HandshakeStream::tls(Client { most, writes: Vec::new() }, one_by_one);
        for part in [hello, end] {
            stream.read_u8().await.expect("a byte");
            stream.write_all(part).await.expect("written");
            stream.flush().await.expect("flushed");
        }
        stream.end_handshake();
        for part in more {
            stream.write_all(part).await.expect("written");
        }
        stream.shutdown().await.expect("shut down");
        stream.stream.writes
    }

    #[tokio::test]
    async fn tickets_go_along_with_what_is_sent_next() {
        let along = [TICKETS, b"first"].concat();
        let writes = written(999, false, HELLO, TICKETS, &[b"first", b"second"]).await;
        assert_eq!(writes, [HELLO, &along, b"second"]);
        assert_eq!(written(999, false, HELLO, TICKETS, &[]).await, [HELLO, TICKETS]);
        let cut = written(100, false, HELLO, TICKETS, &[&[b'a'; 100]]).await;
        assert_eq!(cut, [HELLO.to_vec(), [TICKETS, &[b'a'; 35]].concat(), vec![b'a'; 65]]);
    }

    #[tokio::test]
    async fn nothing_else_of_a_handshake_waits() {
        let alert = &[ENCRYPTED; ALERT - 1][..];
        for (one_by_one, hello, end) in [
            // The kernel has to get the keys after the tickets.
            (true, HELLO, TICKETS),
            (false, HELLO, alert),
            (false, HELLO, HELLO),
        ] {
            let writes = written(999, one_by_one, hello, end, &[b"first"]).await;
            assert_eq!(writes, [hello, end, b"first"]);
        }
        // What follows a partial write may be the rest of an unencrypted record.
        let cut = written(4, false, HELLO, &TICKETS[..ALERT], &[]).await;
        assert_eq!(cut.concat(), [HELLO, &TICKETS[..ALERT]].concat());
        let mut stream = HandshakeStream::tls(Client { most: 4, writes: Vec::new() }, false);
        stream.read_u8().await.expect("a byte");
        assert_eq!(stream.write(HELLO).await.expect("written"), 4);
        stream.read_u8().await.expect("a byte");
        assert_eq!(stream.write(TICKETS).await.expect("written"), 4);
    }

    #[tokio::test]
    async fn no_read_goes_past_a_record() {
        let bytes = b"\x16\x03\x01\x00\x03abc\x14\x03\x03\x00\x00\x17\x03\x03\x00\x01drest";
        let mut stream = HandshakeStream::tls(&bytes[..], true);
        let mut pieces = Vec::new();
        let mut buffer = [0; 64];
        for _ in 0..5 {
            let count = stream.read(&mut buffer).await.expect("bytes");
            pieces.push(buffer[..count].to_vec());
        }
        assert_eq!(pieces, [&bytes[..5], b"abc", &bytes[8..13], &bytes[13..18], b"d"]);
        assert!(stream.is_between_records());
        stream.end_handshake();
        let count = stream.read(&mut buffer).await.expect("bytes");
        assert_eq!(&buffer[..count], b"rest");
    }

    #[tokio::test]
    async fn what_was_received_comes_first() {
        let mut stream = HandshakeStream::with_prefix(b"abc"[..].into(), &b"def"[..]);
        let mut bytes = [0; 2];
        stream.read_exact(&mut bytes).await.expect("bytes");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.expect("bytes");
        assert_eq!((&bytes[..], &rest[..]), (&b"ab"[..], &b"cdef"[..]));
    }

    #[tokio::test]
    async fn a_record_in_pieces_is_not_between() {
        let bytes = b"\x16\x03\x01\x00\x03abc";
        let mut stream = HandshakeStream::tls(&bytes[..], true);
        for between in [false, false, false, false, false, false, false, true] {
            stream.read_u8().await.expect("a byte");
            assert_eq!(stream.is_between_records(), between);
        }
    }
}
