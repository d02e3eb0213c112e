//! A connection to the admin listener that cannot be held: who takes no answer, or says nothing, is cut.
//!
//! actix-web has a deadline for a connection's first head only, and none for writes, so they are under it: in the
//! stream. Where all places are taken, the client that has stood still for longest makes room, so that a crowd of them
//! keeps nobody out.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::strict::Requests;
use crate::admin::Timeouts;

/// How long a client may take nothing of an answer.
const STALLED: Duration = Duration::from_secs(10);

/// How much longer than an idle connection is kept nothing at all may pass: longer than any handler takes.
const SILENT: Duration = Duration::from_secs(60);

/// How long a client may take to close its side once all is said.
const CLOSING: Duration = Duration::from_secs(1);

/// Bytes of one read.
const READ_BYTES: usize = 8 * 1024;

/// The connections of one worker.
#[derive(Clone)]
pub(in crate::admin) struct Connections {
    open: Rc<RefCell<Vec<Rc<Client>>>>,
    most: usize,
    timeouts: Timeouts,
}

/// What is known of the other end.
struct Client {
    /// When something was last read or written.
    moved: Cell<Instant>,
    /// Since when it takes nothing.
    stalled: Cell<Option<Instant>>,
    /// Whether it made room for another.
    cut: Cell<bool>,
    waker: Cell<Option<Waker>>,
    /// Whether an answer has begun of which the stream does not know yet.
    answered: Cell<bool>,
    /// How long nothing may pass.
    silent: Duration,
}

impl Client {
    fn idle_since(&self) -> Instant {
        self.stalled.get().unwrap_or_else(|| self.moved.get())
    }

    fn due(&self) -> Instant {
        let silent = self.moved.get() + self.silent;
        self.stalled.get().map_or(silent, |since| silent.min(since + STALLED))
    }
}

impl Connections {
    /// None yet, and never more than `most`; clients may take so long.
    pub(in crate::admin) fn new(most: usize, timeouts: Timeouts) -> Self {
        Self { open: Rc::default(), most, timeouts }
    }

    /// Takes a connection in. Where that is one too many, the one that has stood still for longest is cut.
    pub(in crate::admin) fn take<S>(&self, stream: S) -> Watched<S> {
        let mut open = self.open.borrow_mut();
        if open.iter().filter(|client| !client.cut.get()).count() >= self.most
            && let Some(longest) =
                open.iter().filter(|client| !client.cut.get()).min_by_key(|client| client.idle_since())
        {
            longest.cut.set(true);
            if let Some(waker) = longest.waker.take() {
                waker.wake();
            }
        }
        let now = Instant::now();
        let client = Rc::new(Client {
            moved: Cell::new(now),
            stalled: Cell::new(None),
            cut: Cell::new(false),
            waker: Cell::new(None),
            answered: Cell::new(false),
            silent: self.timeouts.idle + SILENT,
        });
        open.push(Rc::clone(&client));
        let timer = Box::pin(tokio::time::sleep_until(client.due()));
        Watched {
            stream,
            requests: Requests::new(self.timeouts.head),
            passed: Vec::new(),
            given: 0,
            ended: false,
            closing: None,
            client,
            timer,
            connections: self.clone(),
        }
    }
}

/// Has the handlers of a connection's requests know whose they are.
pub(in crate::admin) fn remember<S>(stream: &Watched<S>, extensions: &mut Extensions) {
    extensions.insert(Rc::clone(&stream.client));
}

/// Lets the next request in once an answer begins.
pub(in crate::admin) async fn answers(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let client = request.conn_data::<Rc<Client>>().cloned();
    let response = next.call(request).await;
    if let Some(client) = client {
        client.answered.set(true);
        if let Some(waker) = client.waker.take() {
            waker.wake();
        }
    }
    response
}

/// A stream that ends where its client stands still.
pub(in crate::admin) struct Watched<S> {
    stream: S,
    requests: Requests,
    /// What is passed on of them, and how much of it was given.
    passed: Vec<u8>,
    given: usize,
    /// Whether the client has closed its side.
    ended: bool,
    /// By when it has to, once all is said.
    closing: Option<Instant>,
    client: Rc<Client>,
    timer: Pin<Box<Sleep>>,
    connections: Connections,
}

impl<S> Watched<S> {
    fn moved(&self) {
        self.client.moved.set(Instant::now());
    }

    /// Waits for the client; an error once it has been for too long. Where a head is late, what refuses it is there to
    /// be read.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.client.waker.set(Some(context.waker().clone()));
        loop {
            let silent = self.client.due();
            let due = self.requests.due().map_or(silent, |head| head.min(silent));
            ready!(self.poll_until(due, context));
            if due == silent {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.requests.late(&mut self.passed);
            context.waker().wake_by_ref();
        }
    }

    /// Waits for the client to take something; an error once it has taken nothing for too long.
    fn stall<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let since = self.client.stalled.get().unwrap_or_else(Instant::now);
        self.client.stalled.set(Some(since));
        self.wait(context)
    }

    fn poll_until(&mut self, due: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        self.timer.as_mut().poll(context)
    }

    fn check(&self) -> io::Result<()> {
        if self.client.cut.get() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().retain(|client| !Rc::ptr_eq(client, &self.client));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let this = &mut *self;
        loop {
            if this.client.answered.take() {
                this.requests.answered(&mut this.passed);
            }
            if this.given < this.passed.len() {
                let part = &this.passed[this.given..];
                let part = &part[..part.len().min(buffer.remaining())];
                buffer.put_slice(part);
                this.given += part.len();
                return Poll::Ready(Ok(()));
            }
            (this.passed, this.given) = (Vec::new(), 0);
            if this.requests.is_broken() {
                // As if it had ended there: who reads the body is told that there is no more.
                return Poll::Ready(Ok(()));
            }
            if this.requests.is_over() || this.requests.is_waiting() {
                // An answer is to come first.
                return this.wait(context);
            }
            let mut bytes = [0; READ_BYTES];
            let mut received = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.stream).poll_read(context, &mut received) {
                Poll::Pending => return this.wait(context),
                Poll::Ready(read) => {
                    read?;
                    this.moved();
                }
            }
            if received.filled().is_empty() {
                this.ended = true;
                return Poll::Ready(Ok(()));
            }
            this.requests.pass(received.filled(), &mut this.passed);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.stall(context),
            written => {
                self.client.stalled.set(None);
                self.moved();
                written
            }
        }
    }

    /// By TLS, what was written may wait here for the client to take it.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.stall(context),
            flushed => {
                self.client.stalled.set(None);
                flushed
            }
        }
    }

    /// Says that all is said, and waits a moment for the client to say so too: a socket closed on bytes that were not
    /// read resets the connection, and the client may lose the answer (RFC 9112, section 9.6).
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.client.waker.set(Some(context.waker().clone()));
        let due = match this.closing {
            Some(due) => due,
            None => {
                ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
                *this.closing.insert(Instant::now() + CLOSING)
            }
        };
        // Behind any other request, actix-web has read what there was.
        let unread = this.requests.is_over();
        let mut bytes = [0; READ_BYTES];
        while unread && !this.ended && !this.client.cut.get() && Instant::now() < due {
            let mut received = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.stream).poll_read(context, &mut received) {
                Poll::Pending => return this.poll_until(due, context).map(Ok),
                Poll::Ready(read) => this.ended = read.is_err() || received.filled().is_empty(),
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::task::noop_waker;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// Longer than any test takes.
    const LONG: Timeouts = Timeouts {
        head: Duration::from_secs(600),
        body: Duration::from_secs(600),
        idle: Duration::from_secs(600),
    };

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    /// Polls once.
    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(&noop_waker()))
    }

    /// A client, and the server's end, to which it stopped listening half a patience ago.
    async fn stalled() -> (DuplexStream, Watched<DuplexStream>, Instant) {
        let (client, server) = duplex(64);
        let mut stream = Connections::new(8, LONG).take(server);
        stream.write_all(&[0; 64]).await.unwrap();
        assert!(poll(stream.write(&[0])).is_pending());
        let since = Instant::now() - STALLED / 2;
        stream.client.stalled.set(Some(since));
        (client, stream, since)
    }

    #[test]
    fn who_takes_nothing_is_cut_however_much_it_sends() {
        run(async {
            let (mut client, mut stream, since) = stalled().await;
            client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
            stream.read_exact(&mut [0; 27]).await.unwrap();
            assert!(poll(stream.write(&[0])).is_pending());
            assert_eq!(stream.client.due(), since + STALLED, "not put off");
            stream.client.stalled.set(Some(Instant::now() - STALLED));
            assert_eq!(stream.write(&[0]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn who_takes_a_little_is_not_cut_for_it() {
        run(async {
            let (mut client, mut stream, _) = stalled().await;
            client.read_exact(&mut [0; 8]).await.unwrap();
            assert_eq!(stream.write(&[0; 64]).await.unwrap(), 8);
            assert!(poll(stream.write(&[0])).is_pending());
            assert!(stream.client.due() > Instant::now() + STALLED / 2, "it has as long again");
        });
    }

    #[test]
    fn who_says_nothing_is_cut() {
        run(async {
            let (_client, server) = duplex(64);
            let mut stream = Connections::new(8, LONG).take(server);
            assert!(poll(stream.read(&mut [0])).is_pending());
            stream.client.moved.set(Instant::now() - stream.client.silent);
            assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_late_head_is_replaced_by_its_refusal() {
        run(async {
            let (mut client, server) = duplex(64);
            let mut stream = Connections::new(8, Timeouts { head: Duration::ZERO, ..LONG }).take(server);
            client.write_all(b"GET / HT").await.unwrap();
            let mut refusal = vec![0; 8];
            stream.read_exact(&mut refusal).await.unwrap();
            assert_eq!(refusal, b"GET /.re", "there without a byte more from the client");
        });
    }

    #[test]
    fn what_is_on_its_way_at_the_end_is_read_until_the_client_closes() {
        run(async {
            let (mut client, server) = duplex(64);
            let mut stream = Connections::new(8, LONG).take(server);
            client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
            stream.read_exact(&mut [0; 18]).await.unwrap();
            client.write_all(&[b'x'; 64]).await.unwrap();
            assert!(poll(stream.shutdown()).is_pending());
            // There is room again.
            client.write_all(&[b'x'; 64]).await.unwrap();
            drop(client);
            stream.shutdown().await.unwrap();
            assert!(stream.ended);
        });
    }

    #[test]
    fn who_has_stood_still_for_longest_makes_room() {
        run(async {
            let connections = Connections::new(3, LONG);
            let streams: Vec<_> = (0..3).map(|_| connections.take(duplex(64).1)).collect();
            let ago = |seconds| Instant::now() - Duration::from_secs(seconds);
            streams[0].client.moved.set(ago(5));
            // It still sends.
            streams[1].client.stalled.set(Some(ago(7)));
            streams[2].client.moved.set(ago(6));
            for cut in [[false, true, false], [false, true, true]] {
                let one_more = connections.take(duplex(64).1);
                let seen: Vec<_> = streams.iter().map(|stream| stream.check().is_err()).collect();
                assert_eq!(seen, cut);
                std::mem::forget(one_more);
            }
            let open = connections.open.borrow().len();
            drop(streams);
            assert_eq!(connections.open.borrow().len(), open - 3);
        });
    }
}
