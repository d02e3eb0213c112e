//! A client that follows links. Its server may be killed at any time, so each request returns an answer or an error.

use std::io;
use std::net::{SocketAddr, TcpStream};

pub use testkit::client::Answer;

/// A connection.
pub struct Client(testkit::client::Client);

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        testkit::client::Client::try_connect(address).map(Self)
    }

    /// A client on this connection.
    #[allow(dead_code)] // Most tests connect from any address.
    pub fn on(stream: TcpStream) -> Self {
        Self(testkit::client::Client::on(stream))
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.try_send(bytes)
    }

    /// Follows `/{path}` as a plain client would.
    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.send(format!("GET /{path} HTTP/1.1\r\nHost: s.example\r\n\r\n"))?;
        self.receive()
    }

    /// Sends a request with a method, further header lines (each with its line end) and a body.
    pub fn request(&mut self, method: &str, path: &str, fields: &str, body: &str) -> io::Result<Answer> {
        let length = body.len();
        self.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: s.example\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
        ))?;
        self.receive()
    }

    /// Reads the next answer to any method but HEAD.
    pub fn receive(&mut self) -> io::Result<Answer> {
        self.0.receive(true)
    }

    /// Reads the next answer to a HEAD.
    pub fn receive_head(&mut self) -> io::Result<Answer> {
        self.0.receive(false)
    }

    /// Whether the server has closed the connection without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        self.0.is_closed()
    }
}
