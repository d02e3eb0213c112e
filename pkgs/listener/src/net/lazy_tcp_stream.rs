//! A socket of TCP that the runtime hears of once there is something to wait for, and not before.
//!
//! Who connects has most often sent a request by the time it is accepted, and may want one answer and no more. Such a
//! connection is read, answered and closed as it is: to be registered with the runtime is two system calls and an event.

use std::io::{self, IoSlice, Read, Write};
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Such a socket.
#[derive(Debug)]
pub struct LazyTcpStream(State);

#[derive(Debug)]
enum State {
    /// Known to nobody but the kernel. It is read once: who is read twice stays for longer.
    New {
        /// Non-blocking.
        socket: net::TcpStream,
        read: bool,
    },
    /// The runtime says when it is ready.
    Registered {
        stream: TcpStream,
        /// Whether something was read since it was last written to.
        asked: bool,
    },
    /// It could not be registered.
    Failed,
}

impl LazyTcpStream {
    /// Of a socket that does not block.
    pub fn new(socket: OwnedFd) -> Self {
        Self(State::New { socket: socket.into(), read: false })
    }

    /// The address of this end.
    ///
    /// # Errors
    /// When it is not connected any more.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            State::New { socket, .. } => socket.local_addr(),
            State::Registered { stream, .. } => stream.local_addr(),
            State::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The socket, unless it failed.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            State::New { socket, .. } => Some(socket.as_fd()),
            State::Registered { stream, .. } => Some(stream.as_fd()),
            State::Failed => None,
        }
    }

    /// The socket alone, which does not block.
    ///
    /// # Errors
    /// When the runtime does not let go of it.
    pub fn into_std(self) -> io::Result<net::TcpStream> {
        match self.0 {
            State::New { socket, .. } => Ok(socket),
            State::Registered { stream, .. } => stream.into_std(),
            State::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// What the runtime knows of, from here on.
    #[inline]
    fn registered(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let State::New { .. } = self.0 {
            self.register()?;
        }
        match &mut self.0 {
            State::Registered { stream, .. } => Ok(Pin::new(stream)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Reads what has come already, the first time.
    fn poll_read_new(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let State::New { read, .. } = &mut self.0
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
        if let State::New { socket, .. } = std::mem::replace(&mut self.0, State::Failed) {
            self.0 = State::Registered { stream: TcpStream::from_std(socket)?, asked: false };
        }
        Ok(())
    }

    /// Tries without the runtime; nothing where that has to say when.
    #[inline]
    fn try_new<T>(&self, mut what: impl FnMut(&net::TcpStream) -> io::Result<T>) -> Option<io::Result<T>> {
        let State::New { socket, .. } = &self.0 else { return None };
        tried(|| what(socket))
    }

    /// The same of a write that answers what was read, also where the runtime knows of the socket: it sees to it that no
    /// task goes on for ever, for which it is enough that it counts the reads.
    #[inline]
    fn try_answer(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        if let State::Registered { stream, asked } = &mut self.0 {
            return if std::mem::take(asked) { tried(|| stream.try_write(bytes)) } else { None };
        }
        self.try_new(|mut socket| socket.write(bytes))
    }
}

/// What comes of it; nothing where it would block.
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

impl AsyncRead for LazyTcpStream {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let State::Registered { stream, asked } = &mut self.0 {
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
        // There is nothing between this and the kernel.
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

    fn is_registered(stream: &LazyTcpStream) -> bool {
        matches!(stream.0, State::Registered { .. })
    }

    #[tokio::test]
    async fn one_who_asks_once_is_not_registered() {
        let (mut client, mut stream) = pair();
        client.write_all(b"ask").expect("written");
        let mut bytes = [0; 8];
        // On this machine, what was written has arrived.
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
