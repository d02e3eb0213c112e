//! An OpenTelemetry collector that accepts every span and keeps none.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// Listens until the bench ends, and returns its address.
pub fn listen() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // A client that is interrupted sends its spans again, or counts them as lost.
            thread::spawn(move || take(connection));
        }
    });
    Ok(address)
}

/// Accepts the requests on one connection.
fn take(connection: TcpStream) -> io::Result<()> {
    let mut answers = connection.try_clone()?;
    let mut requests = BufReader::new(connection);
    let (mut line, mut length) = (String::new(), 0);
    while requests.read_line(&mut line)? > 0 {
        let (name, value) = line.trim_end().split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        } else if line.trim_end().is_empty() {
            io::copy(&mut requests.by_ref().take(length), &mut io::sink())?;
            answers.write_all(ANSWER)?;
            length = 0;
        }
        line.clear();
    }
    Ok(())
}
