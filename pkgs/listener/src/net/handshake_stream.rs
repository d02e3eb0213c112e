//! A stream whose first bytes are read, and written, in a manner of their own.
//!
//! What was received while it was found out what is spoken is given first. A handshake is read record by record where
//! nothing behind it is to be read along: what comes next may be the kernel's to decrypt. Elsewhere the session tickets at
//! its end wait for what is sent next, which saves a call and a packet: no client has a use for them before.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The type, version and length in front of a record (RFC 8446, section 5.1).
const HEADER: usize = 5;

/// The type of an encrypted record.
const ENCRYPTED: u8 = 23;

/// More than an encrypted alert is long, less than a ticket.
const ALERT: usize = 64;

/// Pieces that are written in one call along with what has waited.
const PIECES: usize = 16;

/// Such a stream.
pub struct HandshakeStream<S> {
    stream: S,
    first: First,
    /// Whether the first byte has yet to show that this is TLS.
    hello: bool,
    handshake: Handshake,
    /// Tickets that wait for what is sent next.
    tickets: Vec<u8>,
}

/// What is known of a handshake by what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    /// It has nothing that may wait, or nobody knows.
    Unknown,
    /// Nothing was sent, or nothing was received since.
    Sent,
    /// All that was to be sent was sent, and then something was received.
    Received,
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
    Records(Record),
}

/// Where in a record the reader is.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// The header, as far as it was read.
    header: [u8; HEADER],
    read: usize,
    /// What is left of the record behind its header.
    left: usize,
}

impl<S> HandshakeStream<S> {
    /// After what was received already.
    pub fn with_prefix(received: BytesMut, stream: S) -> Self {
        let first = if received.is_empty() { First::None } else { First::Received(received) };
        Self { stream, first, hello: false, handshake: Handshake::Unknown, tickets: Vec::new() }
    }

    /// Of TLS: an error where it begins as a request does ([`NotTls`]). Record by record where that is asked
    /// for, until the handshake [is over](Self::end_handshake).
    pub fn tls(stream: S, one_by_one: bool) -> Self {
        let (first, handshake) = match one_by_one {
            // Tickets are to be sent before the keys are given away.
            true => (First::Records(Record::default()), Handshake::Unknown),
            false => (First::None, Handshake::Sent),
        };
        Self { stream, first, hello: true, handshake, tickets: Vec::new() }
    }

    /// Whether all that was read are whole records.
    pub fn is_between_records(&self) -> bool {
        matches!(self.first, First::Records(place) if place.read == 0 && place.left == 0)
    }

    /// The handshake is over: from here on reads whatever there is, and lets nothing wait.
    pub fn end_handshake(&mut self) {
        self.first = First::None;
        self.handshake = Handshake::Unknown;
    }

    /// Whether these are session tickets: the first that is encrypted after all of ours was sent and something came of it.
    /// What a server sends before begins with a record in the clear (RFC 8446, section 4), and TLS 1.2 has all in the clear
    /// that ends its handshake.
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

    /// The same.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream alone.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl Record {
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
            // A method. No record has a type like that (RFC 8446, section 5.1).
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
    /// Writes what has waited, and of `pieces` what goes along; says how much of these.
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
                // With its memory: this happens once.
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
        // The rest of what was cut may begin like anything.
        let whole = matches!(written, Poll::Ready(Ok(count)) if count == length);
        this.handshake = if whole { Handshake::Sent } else { Handshake::Unknown };
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The handshake's own flush is what tickets wait beyond.
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

    /// A client that says "x" whenever it is asked, and takes so much of each write.
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

    /// What is written of a handshake that sends these after the client's hello and after what it then says, and of
    /// what comes when it is over.
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
            // The kernel is to have the keys after the tickets.
            (true, HELLO, TICKETS),
            (false, HELLO, alert),
            (false, HELLO, HELLO),
        ] {
            let writes = written(999, one_by_one, hello, end, &[b"first"]).await;
            assert_eq!(writes, [hello, end, b"first"]);
        }
        // What follows a write that was cut may be the rest of a record in the clear.
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
