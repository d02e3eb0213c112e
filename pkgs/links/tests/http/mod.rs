//! A client that sends exactly the bytes it is told to, and reads one answer at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No answer takes longer on this machine, unless something hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// One connection.
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// One answer, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case, in the order they came.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a field; none where it is absent.
    ///
    /// # Panics
    /// Where it is there more than once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value);
        let value = values.next();
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    /// Where a redirect leads.
    pub fn location(&self) -> &str {
        self.field("location").unwrap_or_else(|| panic!("no redirect: {self:?}"))
    }

    /// Whether it is its connection's last.
    pub fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self::on(stream))
    }

    /// On this connection.
    pub fn on(stream: TcpStream) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Follows `/{path}` as a plain client would.
    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.send(format!("GET /{path} HTTP/1.1\r\nHost: s.example\r\n\r\n"))?;
        self.receive()
    }

    /// Asks with a method, further field lines (each with its line end) and a body.
    pub fn request(&mut self, method: &str, path: &str, fields: &str, body: &str) -> io::Result<Answer> {
        let length = body.len();
        self.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: s.example\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
        ))?;
        self.receive()
    }

    /// Reads the next answer to anything but a HEAD.
    pub fn receive(&mut self) -> io::Result<Answer> {
        self.read_answer(true)
    }

    /// Reads the next answer to a HEAD.
    pub fn receive_head(&mut self) -> io::Result<Answer> {
        self.read_answer(false)
    }

    /// Whether the server has closed the connection, with nothing more said.
    pub fn is_closed(&mut self) -> bool {
        assert!(self.received.is_empty(), "more came: {:?}", String::from_utf8_lossy(&self.received));
        matches!(self.stream.read(&mut [0; 64]), Ok(0) | Err(_))
    }

    fn read_answer(&mut self, body: bool) -> io::Result<Answer> {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.fill()?;
        };
        let head = std::str::from_utf8(&self.received[..end - 4]).map_err(|_| invalid("no text"))?;
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 ").or(line.strip_prefix("HTTP/1.0 ")))
            .and_then(|rest| rest.get(..3)?.parse().ok())
            .ok_or_else(|| invalid("no status line"))?;
        let fields = lines
            .map(|line| {
                let (name, value) = line.split_once(": ").ok_or_else(|| invalid("no field line"))?;
                Ok((name.to_ascii_lowercase(), value.to_owned()))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let mut answer = Answer { status, fields, body: Vec::new() };
        let length: usize = match answer.field("content-length") {
            Some(length) if body => length.parse().map_err(|_| invalid("no length"))?,
            _ => 0,
        };
        while self.received.len() < end + length {
            self.fill()?;
        }
        answer.body = self.received[end..end + length].to_vec();
        self.received.drain(..end + length);
        Ok(answer)
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.received.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
