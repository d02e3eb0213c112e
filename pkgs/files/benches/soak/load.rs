//! Rounds of requests, whose bodies are discarded.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bench::Error;
use bench::h3load::{self, LoadRequest};
use bench::wrk;
use rustix::fs::{Advice, fadvise};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with, sockopt};

/// Files of each size: name, bytes, how many.
const FILES: [(&str, usize, usize); 6] = [
    ("1k", 1 << 10, 16),
    ("16k", 16 << 10, 16),
    ("2m", 2_400_000, 8),
    ("64m", 64 << 20, 2),
    // These are requested only with TLS, and are first dropped from memory. Files that are also requested otherwise are
    // kept in copies.
    (COLD_TLS, 2_400_000, 8),
    (COLD_HTTP3, 2_400_000, 8),
];

/// Files for rounds that are cold and encrypted.
const COLD_TLS: &str = "cold-tls";
const COLD_HTTP3: &str = "cold-http3";

/// Connections per round.
const CONNECTIONS: usize = 16;

/// From this many bytes on, a TLS round includes the largest files, and an HTTP/3 round takes a second.
const LARGE: u64 = 256 << 20;

/// No request takes longer, unless something hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The word that turns the bench's executable into the HTTP/3 load: `h3 ADDRESS PATH BYTES SECONDS`.
const H3: &str = "h3";

/// The kind of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files in memory.
    Hot,
    /// Files that are read from the disk.
    Cold,
    /// HTTP/1.1 and HTTP/2 with TLS.
    Tls,
    /// HTTP/3.
    Http3,
    /// The same for files that are read from the disk.
    ColdTls,
    ColdHttp3,
}

/// One round.
pub struct Round<'r> {
    pub kind: Kind,
    pub address: SocketAddr,
    pub root: &'r Path,
    /// About how much is requested.
    pub bytes: u64,
}

/// Clients that read nothing; they disconnect when this is dropped.
pub struct Planted {
    _clients: Vec<TcpStream>,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Hot, Self::Cold, Self::Tls, Self::Http3, Self::ColdTls, Self::ColdHttp3];

    pub fn is_plain(self) -> bool {
        matches!(self, Self::Hot | Self::Cold)
    }

    /// How many bytes a round of this kind requests, if the average of all kinds is `bytes`. Hot rounds get the most,
    /// since they are cheap, and somebody has to read all of it.
    pub fn share(self, bytes: u64) -> u64 {
        match self {
            Self::Hot => bytes * 7 / 2,
            _ => bytes / 2,
        }
    }
}

/// Creates the files that are served.
pub fn make_files(root: &Path) -> io::Result<()> {
    for (name, size, count) in FILES {
        fs::create_dir_all(root.join(name))?;
        for number in 0..count {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + at / 257 + number) as u8).collect();
            fs::write(root.join(name).join(number.to_string()), bytes)?;
        }
    }
    Ok(())
}

impl Round<'_> {
    /// Runs it, and returns how many bytes of bodies arrived.
    pub fn run(&self) -> Result<u64, Error> {
        match self.kind {
            Kind::Hot => Ok(self.plain(&["1k", "16k", "2m"])?),
            Kind::Cold => Ok(self.plain(&["2m", "64m"])?),
            Kind::Tls => {
                self.by_curl(if self.bytes > LARGE { &["16k", "2m", "64m"] } else { &["16k", "2m"] })
            }
            Kind::Http3 => self.by_http3("2m"),
            Kind::ColdTls => self.by_curl(&[COLD_TLS]),
            Kind::ColdHttp3 => self.by_http3(COLD_HTTP3),
        }
    }

    /// Several connections that request one file after the other.
    fn plain(&self, sizes: &[&str]) -> io::Result<u64> {
        let mut clients: Vec<TcpStream> =
            (0..CONNECTIONS).map(|_| self.connect()).collect::<Result<_, _>>()?;
        let mut got = 0;
        while got < self.bytes {
            for (name, _, count) in FILES.iter().filter(|(name, ..)| sizes.contains(name)) {
                for number in 0..*count {
                    if got >= self.bytes {
                        return Ok(got);
                    }
                    self.forget_if_cold(name, number)?;
                    let target = format!("/{name}/{number}");
                    // All at once, so that they share the server.
                    let asked = if self.kind == Kind::Cold { 1 } else { clients.len() };
                    for client in &mut clients[..asked] {
                        write!(client, "GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")?;
                    }
                    for client in &mut clients[..asked] {
                        got += discard(client)?;
                    }
                }
            }
        }
        Ok(got)
    }

    /// Makes the kernel forget a file, in a cold round.
    fn forget_if_cold(&self, name: &str, number: usize) -> io::Result<()> {
        if matches!(self.kind, Kind::Cold | Kind::ColdTls | Kind::ColdHttp3) {
            let file = File::open(self.root.join(name).join(number.to_string()))?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// curl, which discards what it receives, with HTTP/1.1 and HTTP/2 in turn.
    fn by_curl(&self, sizes: &[&str]) -> Result<u64, Error> {
        let curl = bench::setup::require("curl", "curl")?;
        let mut got = 0;
        while got < self.bytes {
            for version in ["--http1.1", "--http2"] {
                let mut command = std::process::Command::new(&curl);
                command.args(["--silent", "--fail", "--insecure", "--max-time", "60", version]);
                command.args(["--write-out", "%{stderr}%{size_download}\n"]);
                for (name, _, count) in FILES.iter().filter(|(name, ..)| sizes.contains(name)) {
                    for number in 0..*count {
                        self.forget_if_cold(name, number)?;
                        let url = format!("https://{}/{name}/{number}", self.address);
                        command.args(["--output", "/dev/null", &url]);
                    }
                }
                let output = command.output().map_err(Error::file(&curl))?;
                let text = String::from_utf8_lossy(&output.stderr);
                if !output.status.success() {
                    return Err(io::Error::other(format!("curl {version}: {}: {text}", output.status)).into());
                }
                got += text.lines().filter_map(|line| line.parse::<u64>().ok()).sum::<u64>();
            }
        }
        Ok(got)
    }

    /// A separate process, whose memory ends with it.
    fn by_http3(&self, asked: &str) -> Result<u64, Error> {
        let of = FILES.iter().find(|(name, ..)| *name == asked);
        let (name, size, count) = *of.expect("files that were made");
        let is_long = self.kind == Kind::Http3 && self.bytes > LARGE;
        let mut got = 0;
        for number in (0..count).cycle() {
            if got >= self.bytes {
                break;
            }
            self.forget_if_cold(name, number)?;
            let own = std::env::current_exe()?;
            let address = self.address.to_string();
            let output = std::process::Command::new(own)
                .args([
                    H3,
                    &address,
                    &format!("/{name}/{number}"),
                    &size.to_string(),
                    if is_long { "1" } else { "0.1" },
                ])
                .output()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let requests: u64 = text.parse().map_err(|_| {
                io::Error::other(format!("HTTP/3: {text}{}", String::from_utf8_lossy(&output.stderr)))
            })?;
            got += requests * size as u64;
        }
        Ok(got)
    }
}

/// Reads one answer from a connection, and discards its body in the kernel. Returns the body's length.
fn discard(client: &mut TcpStream) -> io::Result<u64> {
    let mut head = Vec::new();
    let mut buffer = [0; 2048];
    let end = loop {
        let count = client.peek(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = head.len();
        head.extend_from_slice(&buffer[..count]);
        match head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            Some(at) => {
                client.read_exact(&mut buffer[..at + 4 - before])?;
                break at + 4;
            }
            None => client.read_exact(&mut buffer[..count])?,
        }
    };
    let text = String::from_utf8_lossy(&head[..end]);
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<u64>().ok());
    let length = length.filter(|_| text.starts_with("HTTP/1.1 200 "));
    let length = length.ok_or_else(|| io::Error::other(format!("another answer: {text}")))?;
    let mut left = length;
    // With MSG_TRUNC nothing is copied here (tcp(7)).
    let mut nowhere = vec![0; 1 << 20];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(nowhere.len()).min(nowhere.len());
        match recv(&*client, &mut nowhere[..most], RecvFlags::TRUNC)?.1 {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => left -= count as u64,
        }
    }
    Ok(length)
}

/// Clients that request files and don't read them: without TLS they use pipes, with TLS memory, and in both cases
/// descriptors and what their sockets hold.
pub fn plant(clear: SocketAddr, secure: SocketAddr) -> io::Result<Planted> {
    let slow = |address: &SocketAddr| -> io::Result<TcpStream> {
        let stream = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_recv_buffer_size(&stream, 4096)?;
        connect(&stream, address)?;
        Ok(stream.into())
    };
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut stream = slow(&clear)?;
        stream.write_all(b"GET /2m/0 HTTP/1.1\r\nHost: h\r\n\r\n")?;
        clients.push(stream);
        // A started handshake: a record that says that more of it will come.
        let mut stream = slow(&secure)?;
        stream.write_all(&[22, 3, 1, 64, 0, 1])?;
        clients.push(stream);
    }
    Ok(Planted { _clients: clients })
}

/// Runs the HTTP/3 load if the arguments say so.
pub fn run_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [word, address, path, size, seconds] = &arguments[..] else { return None };
    if word != H3 {
        return None;
    }
    let run = || -> Result<wrk::Outcome, String> {
        let address: SocketAddr = address.parse().map_err(|_| "no address")?;
        let size = size.parse().map_err(|_| "no size")?;
        let seconds: f64 = seconds.parse().map_err(|_| "no time")?;
        let load = h3load::Load { connections: 2, streams: 4, request: LoadRequest::get(path, size) };
        Ok(load.run(address, Duration::from_secs_f64(seconds))?.summary())
    };
    Some(match run() {
        Ok(outcome) => {
            println!("{}", outcome.requests);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    })
}
