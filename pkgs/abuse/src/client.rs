//! A client that sends exactly the bytes it is given, and reads one answer at a time.
//!
//! Unlike testkit's client, it also speaks TLS, skips 1xx, accepts an answer that ends with the connection, and parses
//! with [`model`], which finds faults that a lenient client would overlook.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::conversation::Socket;
use crate::model;
pub use crate::model::Answer;

/// No answer takes longer, however busy the machine is, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Debug)]
pub struct Client<S = TcpStream> {
    /// The underlying stream.
    pub stream: S,
    received: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        Self::on(stream)
    }
}

/// A connection with a small receive buffer, so that a server soon notices unread bytes.
///
/// # Errors
/// When nobody listens.
pub fn narrow(address: SocketAddr) -> io::Result<TcpStream> {
    // Programs that other tests start must not inherit it.
    let stream = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_recv_buffer_size(&stream, 4096)?;
    connect(&stream, &address)?;
    let stream = TcpStream::from(stream);
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl<S: Socket> Client<S> {
    /// A client on an existing connection.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn on(stream: S) -> io::Result<Self> {
        stream.tcp().set_read_timeout(Some(PATIENCE))?;
        stream.tcp().set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the server has closed the connection.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Sends a request with further header lines, each with its line end, and reads the answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn ask(&mut self, method: &str, target: &str, fields: &str, body: &[u8]) -> io::Result<Answer> {
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let mut request =
            format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{length}{fields}\r\n").into_bytes();
        request.extend_from_slice(body);
        // A server that refuses the request may not read all of it.
        let sent = self.send(request);
        self.receive(method).or_else(|error| sent.and(Err(error)))
    }

    /// Reads the next answer, which is to a request with this method. Skips 1xx.
    ///
    /// # Errors
    /// When there is none, or it isn't HTTP/1.1.
    pub fn receive(&mut self, method: &str) -> io::Result<Answer> {
        loop {
            if let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let (answer, used) = model::answer(&self.received, method).map_err(io::Error::other)?;
                // An answer without a length ends with the connection.
                let told =
                    answer.field("content-length").is_some() || answer.field("transfer-encoding").is_some();
                let bare = method == "HEAD" || answer.status < 200 || matches!(answer.status, 204 | 304);
                if answer.whole && (told || bare) {
                    self.received.drain(..used);
                    if answer.status < 200 {
                        continue;
                    }
                    return Ok(answer);
                }
                if !told && !bare {
                    self.stream.read_to_end(&mut self.received)?;
                    let (answer, _) = model::answer(&self.received, method).map_err(io::Error::other)?;
                    self.received.clear();
                    return Ok(answer);
                }
                // The answer is incomplete. Read at least as much as is missing, if that is known.
                let missing = answer.field("content-length").and_then(|length| length.parse::<usize>().ok());
                let missing =
                    missing.map_or(1, |length| (end + 4 + length).saturating_sub(self.received.len()));
                self.fill(missing)?;
                continue;
            }
            self.fill(1)?;
        }
    }

    /// Waits for the server to end the connection without saying anything more.
    ///
    /// # Errors
    /// When it stays open, or something arrives instead.
    pub fn closed(&mut self) -> io::Result<()> {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            _ if !self.received.is_empty() => Err(io::Error::other("there is more")),
            Ok(0) => Ok(()),
            Ok(_) => Err(io::Error::other("more comes")),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Err(error)
            }
            Err(_) => Ok(()),
        }
    }

    fn fill(&mut self, at_least: usize) -> io::Result<()> {
        let before = self.received.len();
        let mut buffer = vec![0; 64 * 1024];
        while self.received.len() < before + at_least {
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.received.extend_from_slice(&buffer[..count]),
            }
        }
        Ok(())
    }
}
