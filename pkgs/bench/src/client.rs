//! A small HTTP/1.1 client: for single requests, and for requesting many paths once each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How many requests of [`Client::visit`] are in flight at once.
const PIPELINE: usize = 32;

/// Longer than any request of a bench takes, but short enough to wait for.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A kept-alive connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The status for a path.
    pub fn status(&mut self, path: &str) -> io::Result<u16> {
        self.send(std::iter::once(path))?;
        self.receive()
    }

    /// Requests each path once and returns how many were answered with `expected`.
    pub fn visit<'a>(&mut self, paths: impl Iterator<Item = &'a str>, expected: u16) -> io::Result<usize> {
        let mut paths = paths.peekable();
        let mut met = 0;
        while paths.peek().is_some() {
            let sent = self.send(paths.by_ref().take(PIPELINE))?;
            for _ in 0..sent {
                met += usize::from(self.receive()? == expected);
            }
        }
        Ok(met)
    }

    fn send<'a>(&mut self, paths: impl Iterator<Item = &'a str>) -> io::Result<usize> {
        let (mut requests, mut count) = (String::new(), 0);
        for path in paths {
            requests.extend(["GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"]);
            count += 1;
        }
        self.stream.get_mut().write_all(requests.as_bytes())?;
        Ok(count)
    }

    fn receive(&mut self) -> io::Result<u16> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "not an HTTP/1.1 response");
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(malformed)?;
        let mut body = 0;
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(malformed());
            }
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                body = value.trim().parse().map_err(|_| malformed())?;
            }
        }
        io::copy(&mut self.stream.by_ref().take(body), &mut io::sink())?;
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn bodies_are_skipped_and_statuses_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client comes");
            let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nHTTP/\
                          HTTP/1.1 307 Temporary Redirect\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer.repeat(2).as_bytes()).expect("the client reads");
            // Reads until the client is done, since unread requests would reset the connection.
            io::copy(&mut stream, &mut io::sink()).expect("the client closes");
        });
        let mut client = Client::connect(address).expect("the server listens");
        assert_eq!(client.status("/a").expect("an answer"), 404);
        assert_eq!(client.visit(["/b", "/c", "/d"].into_iter(), 307).expect("answers"), 2);
        drop(client);
        server.join().expect("the server ends");
    }
}
