//! A client that sends exactly the bytes it is given, and reads one answer at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::interruption::uninterrupted;

/// A timeout for answers. It is long, since a machine may be slow; only a hanging server exceeds it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// One connection.
pub struct Client {
    /// The stream itself, for tests that need it.
    pub stream: TcpStream,
    received: Vec<u8>,
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, with three digits.
    pub status: u16,
    /// Headers in the order they arrived, with names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
}

impl Answer {
    /// The values of a header, joined as in RFC 9110, section 5.3.
    pub fn field(&self, name: &str) -> Option<String> {
        let values: Vec<&str> =
            self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// The value of a header; none if it is absent.
    ///
    /// # Panics
    /// When it is there more than once.
    #[track_caller]
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value);
        let value = values.next();
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    /// The target of a redirect.
    ///
    /// # Panics
    /// When it isn't a redirect.
    #[track_caller]
    pub fn location(&self) -> &str {
        self.value("location").unwrap_or_else(|| panic!("no redirect: {self:?}"))
    }

    /// Whether it is the last answer on its connection.
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
    ///
    /// # Panics
    /// When nobody listens.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("the server listens")
    }

    /// Connects to a server that may be gone.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self::on(stream))
    }

    /// A client on this connection.
    pub fn on(stream: TcpStream) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// When the server has closed the connection.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server reads");
    }

    /// Sends bytes to a server that may have closed the connection.
    ///
    /// # Errors
    /// When it has.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a GET request with additional header lines, each with its line end.
    pub fn get(&mut self, target: &str, fields: &str) -> Answer {
        self.ask("GET", target, fields)
    }

    /// The same with another method.
    pub fn ask(&mut self, method: &str, target: &str, fields: &str) -> Answer {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        self.receive(method != "HEAD").unwrap_or_else(|error| panic!("{method} {target} {fields:?}: {error}"))
    }

    /// Reads the next answer. With `body` false, expects no body, as after HEAD.
    pub fn receive(&mut self, body: bool) -> io::Result<Answer> {
        let head = self.receive_head()?;
        if body { self.receive_body(head) } else { Ok(head) }
    }

    /// Reads the body that follows a head.
    pub fn receive_body(&mut self, mut answer: Answer) -> io::Result<Answer> {
        if answer.status < 200 || matches!(answer.status, 204 | 304) {
            return Ok(answer);
        }
        if answer.field("transfer-encoding").as_deref() == Some("chunked") {
            loop {
                let line = self.line()?;
                let length = usize::from_str_radix(&line, 16).map_err(|_| invalid("no chunk"))?;
                let chunk = self.take(length)?;
                answer.body.extend_from_slice(&chunk);
                if !self.line()?.is_empty() {
                    return Err(invalid("a chunk has no end"));
                }
                if length == 0 {
                    return Ok(answer);
                }
            }
        }
        let length = answer.field("content-length").ok_or_else(|| invalid("no length"))?;
        answer.body = self.take(length.parse().map_err(|_| invalid("no length"))?)?;
        Ok(answer)
    }

    /// Reads the next answer's head.
    pub fn receive_head(&mut self) -> io::Result<Answer> {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.fill()?;
        };
        let head = self.take(end)?;
        let head = std::str::from_utf8(&head[..end - 4]).map_err(|_| invalid("no text"))?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(": ").ok_or_else(|| invalid("no field line"))?;
            Ok((name.to_ascii_lowercase(), value.to_owned()))
        });
        let fields = fields.collect::<io::Result<_>>()?;
        Ok(Answer { status: status.ok_or_else(|| invalid("no status line"))?, fields, body: Vec::new() })
    }

    /// Everything that arrives until the connection ends, and whether it ended without a reset.
    pub fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut all = std::mem::take(&mut self.received);
        let well = self.stream.read_to_end(&mut all).is_ok();
        (all, well)
    }

    /// Whether the server has closed the connection without sending more data.
    pub fn is_closed(&mut self) -> bool {
        assert!(self.received.is_empty(), "more came: {:?}", String::from_utf8_lossy(&self.received));
        match uninterrupted(|| self.stream.read(&mut [0; 64])) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.received.windows(2).position(|window| window == b"\r\n") {
                let line = self.take(at + 2)?;
                return String::from_utf8(line[..at].to_vec()).map_err(|_| invalid("no text"));
            }
            self.fill()?;
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < length {
            self.fill()?;
        }
        let rest = self.received.split_off(length);
        Ok(std::mem::replace(&mut self.received, rest))
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 64 * 1024];
        match uninterrupted(|| self.stream.read(&mut buffer))? {
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
