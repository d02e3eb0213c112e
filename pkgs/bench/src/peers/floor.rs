//! The floor: the cost of a server that leaves almost all work to the kernel.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use memchr::memmem;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// Holds the pipelined requests from one read. The rest is read next.
const BUFFER_BYTES: usize = 8192;

/// Longer than any queue of connections that a bench opens at once.
const BACKLOG: i32 = 4096;

/// How many events are taken at once.
const EVENTS: usize = 256;

struct Connection {
    stream: TcpStream,
    /// The start of a request that isn't complete yet.
    pending: Vec<u8>,
}

/// The response with its date, which is updated every second as HTTP servers must (RFC 9110, section 6.6.1).
struct Answer {
    bytes: Vec<u8>,
    made: Instant,
}

pub(super) fn serve(address: SocketAddr, workers: usize) -> io::Result<()> {
    let listeners = (0..workers).map(|_| listen(address)).collect::<io::Result<Vec<_>>>()?;
    let threads: Vec<_> =
        listeners.into_iter().map(|listener| thread::spawn(move || work(&listener))).collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::ErrorKind::Other)?)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&socket, true)?;
    set_socket_reuseport(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn work(listener: &TcpListener) -> io::Result<()> {
    // No connection has the listener's number, so it identifies the listener.
    let listening = listener.as_raw_fd() as usize;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(listening as u64), EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    let mut input = [0; BUFFER_BYTES];
    let mut output = Vec::new();
    let mut answer = Answer::new();
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        answer.refresh();
        for event in &events {
            let number = event.data.u64() as usize;
            if number != listening {
                let Some(connection) = connections.get_mut(number) else { continue };
                let open = connection.as_mut().is_some_and(|connection| {
                    connection.answer(&answer.bytes, &mut input, &mut output).unwrap_or(false)
                });
                if !open {
                    *connection = None;
                }
                continue;
            }
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let number = stream.as_raw_fd() as usize;
                epoll::add(
                    &epoll,
                    &stream,
                    EventData::new_u64(number as u64),
                    EventFlags::IN | EventFlags::RDHUP,
                )?;
                if connections.len() <= number {
                    connections.resize_with(number + 1, || None);
                }
                connections[number] = Some(Connection { stream, pending: Vec::new() });
            }
        }
    }
}

impl Connection {
    /// Answers what has arrived, and returns whether the connection stays open.
    fn answer(&mut self, answer: &[u8], input: &mut [u8], output: &mut Vec<u8>) -> io::Result<bool> {
        let count = self.stream.read(input)?;
        let received = &input[..count];
        let (ends, rest) = if self.pending.is_empty() {
            requests(received)
        } else {
            self.pending.extend_from_slice(received);
            requests(&self.pending)
        };
        let rest = rest.to_vec();
        self.pending = rest;
        output.clear();
        (0..ends).for_each(|_| output.extend_from_slice(answer));
        // A client that doesn't read its answers is cut off, since there is nothing to learn from it.
        Ok(count > 0 && self.stream.write(output)? == output.len())
    }
}

impl Answer {
    fn new() -> Self {
        Self { bytes: Self::bytes(), made: Instant::now() }
    }

    fn refresh(&mut self) {
        if self.made.elapsed() >= Duration::from_secs(1) {
            *self = Self::new();
        }
    }

    fn bytes() -> Vec<u8> {
        let date = httpdate::fmt_http_date(SystemTime::now());
        let target = super::TARGET;
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\ncontent-length: 0\r\nlocation: {target}\r\ndate: {date}\r\n\r\n"
        )
        .into_bytes()
    }
}

/// How many requests end in `bytes`, and what follows the last one's end.
fn requests(bytes: &[u8]) -> (usize, &[u8]) {
    const END: &[u8] = b"\r\n\r\n";
    let (count, end) =
        memmem::find_iter(bytes, END).fold((0, 0), |(count, _), at| (count + 1, at + END.len()));
    (count, &bytes[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_their_ends() {
        let cases: [(&[u8], usize, &[u8]); 4] = [
            (b"", 0, b""),
            (b"GET / HTTP/1.1\r\n", 0, b"GET / HTTP/1.1\r\n"),
            (b"GET / HTTP/1.1\r\n\r\n", 1, b""),
            (b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nGE", 2, b"GE"),
        ];
        for (bytes, count, rest) in cases {
            assert_eq!(requests(bytes), (count, rest), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
