//! A TCP socket that is registered with the runtime only once there is something to wait for.
//!
//! Most clients have sent a request by the time they are accepted, and some want only one answer. Such a connection is
//! read, answered and closed without registration, which costs two system calls and an event.

use std::io::{self, IoSlice, Read, Write};
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::Transport;

/// A TCP socket.
#[derive(Debug)]
pub struct LazyTcpStream {
    state: State,
    /// Whether the next write is the last.
    ends: bool,
}

#[derive(Debug)]
enum State {
    /// Not registered. It is read once in this state, since a client that is read a second time will stay longer.
    New {
        /// Non-blocking.
        socket: net::TcpStream,
        read: bool,
    },
    /// Registered: the runtime says when it is ready.
    Registered {
        stream: TcpStream,
        /// Whether something was read since the last write.
        asked: bool,
    },
    /// Registration failed.
    Failed,
}

impl LazyTcpStream {
    /// Wraps a non-blocking socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self { state: State::New { socket: socket.into(), read: false }, ends: false }
    }

    /// The address of this end.
    ///
    /// # Errors
    /// When it is no longer connected.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.state {
            State::New { socket, .. } => socket.local_addr(),
            State::Registered { stream, .. } => stream.local_addr(),
            State::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The socket, unless registration failed.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::New { socket, .. } => Some(socket.as_fd()),
            State::Registered { stream, .. } => Some(stream.as_fd()),
            State::Failed => None,
        }
    }

    fn into_std(self) -> io::Result<net::TcpStream> {
        match self.state {
            State::New { socket, .. } => Ok(socket),
            State::Registered { stream, .. } => stream.into_std(),
            State::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Registers the socket with the runtime, unless that is done.
    #[inline]
    fn registered(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let State::New { .. } = self.state {
            self.register()?;
        }
        match &mut self.state {
            State::Registered { stream, .. } => Ok(Pin::new(stream)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The first read, of what has already arrived.
    fn poll_read_new(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let State::New { read, .. } = &mut self.state
            && !std::mem::replace(read, true)
        {
            let room = buffer.initialize_unfilled();
            if let Some(read) = self.try_new(|mut socket| socket.read(room)) {
                buffer.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
        self.registered()?.poll_read(context, buffer)
    }

    #[cold]
    fn register(&mut self) -> io::Result<()> {
        if let State::New { socket, .. } = std::mem::replace(&mut self.state, State::Failed) {
            self.state = State::Registered { stream: TcpStream::from_std(socket)?, asked: false };
        }
        Ok(())
    }

    /// Tries something without the runtime. None if it would block, so that the runtime has to say when to try again.
    #[inline]
    fn try_new<T>(&self, mut what: impl FnMut(&net::TcpStream) -> io::Result<T>) -> Option<io::Result<T>> {
        let State::New { socket, .. } = &self.state else { return None };
        tried(|| what(socket))
    }

    /// The same for a write that answers a read, even if the socket is registered. The runtime's budget keeps a task
    /// from running forever, and it suffices to count reads for that.
    #[inline]
    fn try_answer(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        if let State::Registered { stream, asked } = &mut self.state {
            let (stream, ends) = (&*stream, self.ends);
            let write = || stream.try_io(Interest::WRITABLE, || send(stream, bytes, ends));
            return if std::mem::take(asked) { tried(write) } else { None };
        }
        self.try_new(|socket| send(socket, bytes, self.ends))
    }
}

/// Writes to a socket. If the end follows, the kernel holds the last packet back until then, so the client gets both in
/// one.
#[inline]
fn send(socket: impl AsFd, bytes: &[u8], end_follows: bool) -> io::Result<usize> {
    let more = if end_follows { SendFlags::MORE } else { SendFlags::empty() };
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | more)?)
}

/// The result, or none if it would block.
#[inline]
fn tried<T>(mut what: impl FnMut() -> io::Result<T>) -> Option<io::Result<T>> {
    loop {
        match what() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return Some(done),
        }
    }
}

impl Transport for LazyTcpStream {
    fn expect_end(&mut self) {
        self.ends = true;
    }

    fn tcp(&self) -> Option<BorrowedFd<'_>> {
        self.socket()
    }

    fn into_tcp(self) -> io::Result<net::TcpStream> {
        self.into_std()
    }
}

impl AsyncRead for LazyTcpStream {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let State::Registered { stream, asked } = &mut self.state {
            let read = Pin::new(stream).poll_read(context, buffer);
            *asked |= read.is_ready();
            return read;
        }
        self.poll_read_new(context, buffer)
    }
}

impl AsyncWrite for LazyTcpStream {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.try_answer(bytes) {
            Some(written) => Poll::Ready(written),
            None => self.registered()?.poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.try_new(|mut socket| socket.write_vectored(pieces)) {
            Some(written) => Poll::Ready(written),
            None => self.registered()?.poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // There is no buffer above the kernel.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.try_new(|socket| socket.shutdown(net::Shutdown::Write)) {
            Some(shut) => Poll::Ready(shut),
            None => self.registered()?.poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A client, and the other end.
    fn pair() -> (net::TcpStream, LazyTcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let client = net::TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        let (accepted, _) = listener.accept().expect("accepts");
        accepted.set_nonblocking(true).expect("a socket");
        (client, LazyTcpStream::new(accepted.into()))
    }

    /// Waits until something has arrived, which on one machine is usually at once.
    fn has_arrived(stream: &LazyTcpStream) {
        let State::New { socket, .. } = &stream.state else { panic!("it is registered") };
        while socket.peek(&mut [0; 1]).is_err() {
            std::thread::yield_now();
        }
    }

    fn is_registered(stream: &LazyTcpStream) -> bool {
        matches!(stream.state, State::Registered { .. })
    }

    #[tokio::test]
    async fn one_who_asks_once_is_not_registered() {
        let (mut client, mut stream) = pair();
        client.write_all(b"ask").expect("written");
        let mut bytes = [0; 8];
        has_arrived(&stream);
        assert_eq!(stream.read(&mut bytes).await.expect("read"), 3);
        stream.write_all(b"answer").await.expect("written");
        stream.shutdown().await.expect("shut down");
        assert!(!is_registered(&stream));
        drop(stream);
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("read");
        assert_eq!(answer, "answer");
    }

    #[tokio::test]
    async fn what_is_written_before_the_end_arrives_with_it() {
        for (shut, waited_for) in [(false, false), (false, true), (true, false), (true, true)] {
            let (mut client, mut stream) = pair();
            let mut bytes = [0; 8];
            if waited_for {
                client.write_all(b"first").expect("written");
                assert_eq!(stream.read(&mut bytes).await.expect("read"), 5);
                assert!(stream.registered().is_ok());
            }
            client.write_all(b"ask").expect("written");
            assert_eq!(stream.read(&mut bytes).await.expect("read"), 3);
            stream.expect_end();
            stream.write_all(b"answer").await.expect("written");
            let mut kept = Some(stream);
            match &mut kept {
                Some(stream) if shut => stream.shutdown().await.expect("shut down"),
                _ => kept = None,
            }
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("read to the end");
            assert_eq!(answer, "answer", "{shut} {waited_for}");
            drop(kept);
        }
    }

    #[tokio::test]
    async fn one_who_is_waited_for_is() {
        let (mut client, mut stream) = pair();
        let mut bytes = [0; 8];
        for text in ["late", "again"] {
            let reading = tokio::spawn(async move {
                let count = stream.read(&mut bytes).await.expect("read");
                (stream, bytes[..count].to_vec())
            });
            tokio::task::yield_now().await;
            client.write_all(text.as_bytes()).expect("written");
            let read;
            (stream, read) = reading.await.expect("no panic");
            assert_eq!(read, text.as_bytes());
            assert!(is_registered(&stream));
        }
    }

    #[tokio::test]
    async fn one_who_takes_little_is() {
        let (mut client, mut stream) = pair();
        let writing = tokio::spawn(async move {
            stream.write_all(&vec![b'x'; 32 << 20]).await.expect("written");
            is_registered(&stream)
        });
        tokio::task::yield_now().await;
        let reading = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).expect("read");
            all.len()
        });
        assert!(writing.await.expect("no panic"));
        assert_eq!(reading.await.expect("no panic"), 32 << 20);
    }
}
