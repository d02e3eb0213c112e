//! A proxy between the server and the gateway: it counts requests, and does to answers what networks and broken servers
//! do.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What happens to answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They are passed on.
    None,
    /// Connections are closed as soon as they are opened.
    Gone,
    /// They wait until there is another fault, or none.
    Held,
    /// Bodies wait after this many bytes until there is another fault, or none.
    HeldAfter(usize),
    /// Bodies end after this many bytes, with their connection.
    CutAfter(usize),
    /// Bodies are this many bytes shorter, and `Content-Length` says so, but `Content-Range` doesn't.
    Shorter(usize),
    /// The same with more bytes.
    Longer(usize),
    /// `Content-Range` claims that the object has this many more bytes.
    Larger(u64),
    /// The ETag is a different one.
    OtherTag,
    /// There is no ETag.
    NoTag,
    /// 503 for any request.
    Unavailable,
    /// 403 for any request.
    Forbidden,
    /// 200 instead of 206, like a server that doesn't know ranges.
    NoRanges,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The first line.
    pub line: String,
    /// The headers, with names in lower case.
    fields: Vec<(String, String)>,
}

impl RecordedRequest {
    /// A header's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The proxy. Its threads end with the test's process.
#[derive(Clone)]
pub struct Meddler {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    fault: Mutex<Fault>,
    changed: Condvar,
    asked: Mutex<Vec<RecordedRequest>>,
    sent: AtomicU64,
    waiting: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Meddler {
    /// A proxy in front of this gateway.
    pub fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            upstream,
            fault: Mutex::new(Fault::None),
            changed: Condvar::new(),
            asked: Mutex::default(),
            sent: AtomicU64::new(0),
            waiting: Mutex::new(0),
        });
        let of = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let of = Arc::clone(&of);
                std::thread::spawn(move || of.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// Its URL as an endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From here on, this happens to answers, including those that wait.
    pub fn set(&self, fault: Fault) {
        *lock(&self.shared.fault) = fault;
        self.shared.changed.notify_all();
    }

    /// The requests since this was last called.
    pub fn asked(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut *lock(&self.shared.asked))
    }

    /// How many answers wait.
    pub fn waiting(&self) -> usize {
        *lock(&self.shared.waiting)
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream) {
        if *lock(&self.fault) == Fault::Gone {
            return;
        }
        let _ = client.set_nodelay(true);
        // The server under test has to survive a failed connection.
        while let Ok(true) = self.exchange(&mut client) {}
        let _ = client.shutdown(Shutdown::Both);
    }

    /// Handles one request and its answer. Returns whether the connection continues.
    fn exchange(&self, client: &mut TcpStream) -> io::Result<bool> {
        let (head, _) = read_head(client)?;
        let (line, fields) = parse(&head);
        let is_head = line.starts_with("HEAD ");
        lock(&self.asked).push(RecordedRequest { line, fields });
        let fault = *lock(&self.fault);
        match fault {
            Fault::Gone => return Ok(false),
            Fault::Unavailable | Fault::Forbidden => {
                let status = if fault == Fault::Forbidden { "403 Forbidden" } else { "503 Slow Down" };
                let code = if fault == Fault::Forbidden { "AccessDenied" } else { "SlowDown" };
                let body = format!("<Error><Code>{code}</Code></Error>");
                let body = if is_head { "" } else { &body };
                write!(client, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
                return Ok(true);
            }
            Fault::Held => {
                self.wait(fault);
                if *lock(&self.fault) == Fault::Gone {
                    return Ok(false);
                }
            }
            _ => {}
        }
        let mut upstream = TcpStream::connect(self.upstream)?;
        upstream.set_nodelay(true)?;
        upstream.write_all(&head)?;
        let (head, rest) = read_head(&mut upstream)?;
        let (status, fields) = parse(&head);
        let length = fields.iter().find(|(name, _)| name == "content-length");
        let length: usize = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
        let has_body = !is_head && !status.contains(" 304 ") && !status.contains(" 204 ");
        let mut body = rest;
        if has_body {
            let mut more = vec![0; length.saturating_sub(body.len())];
            upstream.read_exact(&mut more)?;
            body.extend(more);
        }
        // Errors are passed on unchanged.
        let fault = if status.contains(" 200 ") || status.contains(" 206 ") { fault } else { Fault::None };
        match fault {
            Fault::Shorter(by) => body.truncate(body.len().saturating_sub(by)),
            Fault::Longer(by) => body.extend(vec![b'+'; by]),
            _ => {}
        }
        let status = if fault == Fault::NoRanges { "HTTP/1.1 200 OK" } else { &status };
        let mut answer = format!("{status}\r\n");
        for (name, value) in &fields {
            let value = match (name.as_str(), fault) {
                ("content-length", Fault::Shorter(_) | Fault::Longer(_)) if has_body => {
                    body.len().to_string()
                }
                ("content-range", Fault::Larger(by)) => {
                    let (range, size) = value.split_once('/').expect("a size");
                    format!("{range}/{}", size.parse::<u64>().expect("a size") + by)
                }
                ("etag", Fault::OtherTag) => "\"another\"".to_owned(),
                ("etag", Fault::NoTag) => continue,
                ("content-range", Fault::NoRanges) | ("connection", _) => continue,
                _ => value.clone(),
            };
            answer.push_str(&format!("{name}: {value}\r\n"));
        }
        answer.push_str("\r\n");
        client.write_all(answer.as_bytes())?;
        if !has_body {
            return Ok(true);
        }
        let first = match fault {
            Fault::CutAfter(count) | Fault::HeldAfter(count) => count.min(body.len()),
            _ => body.len(),
        };
        client.write_all(&body[..first])?;
        self.sent.fetch_add(first as u64, Ordering::Relaxed);
        match fault {
            Fault::CutAfter(_) if first < body.len() => return Ok(false),
            Fault::HeldAfter(_) if first < body.len() => {
                self.wait(fault);
                client.write_all(&body[first..])?;
                self.sent.fetch_add((body.len() - first) as u64, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(true)
    }

    /// Waits until there is another fault.
    fn wait(&self, fault: Fault) {
        *lock(&self.waiting) += 1;
        let mut now = lock(&self.fault);
        while *now == fault {
            let waited = self.changed.wait_timeout(now, Duration::from_secs(60));
            now = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(now);
        *lock(&self.waiting) -= 1;
    }
}

/// A head, with the empty line at its end, and what came after it.
fn read_head(stream: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            return Ok((bytes, rest));
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

fn parse(head: &[u8]) -> (String, Vec<(String, String)>) {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.trim_end().split("\r\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let fields = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    (first, fields.collect())
}
