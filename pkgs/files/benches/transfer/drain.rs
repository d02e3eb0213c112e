//! A client that discards bodies unread, so that the server is measured rather than the load's copying: `recv` with
//! `MSG_TRUNC` (tcp(7)). It runs as a separate process, on the load's CPU.

use std::env;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bench::Error;
use bench::server::Server;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};

use crate::network::Network;

/// The word that turns the bench's executable into the load.
const LOAD: &str = "drain";

/// How many bytes are read, rather than discarded, at the start of an answer. This is longer than any head here; a
/// small file comes with its head.
const HEAD_BYTES: usize = 2048;
/// How much is discarded at once.
const DISCARD_BYTES: usize = 1 << 20;
/// The head is read and its length compared for one of this many answers. The others are assumed to be as long,
/// including the head, and are discarded at once: a load that reads each head separately reaches its limit before a
/// server does.
const LOOKED_AT: usize = 64;

/// What the client saw.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Requests answered completely.
    pub requests: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// 99 % of the answers were complete within this many microseconds.
    pub p99_us: f64,
}

/// What is requested, and how.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// A directory below the root, with files `f0.bin` and so on.
    pub directory: &'a str,
    /// How many files it has.
    pub files: usize,
    /// The order in which they are requested.
    pub order: Order,
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// How long, in seconds.
    pub seconds: f64,
    /// Limits the requests per second.
    pub rate: Option<f64>,
    /// Determines all random choices: servers with the same seed get requests for the same files, one after the other,
    /// as far as they get.
    pub seed: u64,
}

/// The order in which files are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Turn,
    /// At random, all equally often.
    Random,
    /// At random, the n-th 1/n as often as the first (Zipf's law with the exponent 1).
    Zipf,
}

impl Order {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Turn, "turn"), (Self::Random, "random"), (Self::Zipf, "zipf")];

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(order, _)| *order == self).map_or("", |(_, name)| name)
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(order, _)| order)
    }
}

/// Selects the next file.
struct Picker {
    order: Order,
    files: usize,
    asked: usize,
    random: u64,
    /// For each file, the fraction of requests that are for it or an earlier one.
    shares: Vec<f64>,
}

impl Picker {
    fn new(order: Order, files: usize, seed: u64) -> Self {
        let mut shares: Vec<f64> = Vec::new();
        if order == Order::Zipf {
            let mut sum = 0.0;
            shares.extend((1..=files).map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            }));
            shares.iter_mut().for_each(|share| *share /= sum);
        }
        // Spread over all bits, and never 0, which would give no random numbers.
        let random = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self { order, files, asked: 0, random, shares }
    }

    fn next(&mut self) -> usize {
        self.asked += 1;
        // xorshift64* (Vigna, 2016).
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let random = (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64;
        match self.order {
            Order::Turn => self.asked % self.files,
            Order::Random => (random * self.files as f64) as usize,
            // Ranks are scattered, so that popular files aren't next to each other on the disk.
            Order::Zipf => {
                let rank = self.shares.partition_point(|share| *share < random).min(self.files - 1);
                rank * 7919 % self.files
            }
        }
    }
}

/// Runs the load if the command line says so: `drain ADDRESS DIRECTORY FILES ORDER CONNECTIONS SECONDS RATE SEED`.
pub fn load_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [word, address, directory, files, order, connections, seconds, rate, seed] = arguments.as_slice()
    else {
        return None;
    };
    if word != LOAD {
        return None;
    }
    let asked = Workload {
        directory,
        files: files.parse().ok()?,
        order: Order::named(order)?,
        connections: connections.parse().ok()?,
        seconds: seconds.parse().ok()?,
        rate: rate.parse::<f64>().ok().filter(|rate| *rate > 0.0),
        seed: seed.parse().ok()?,
    };
    Some(match load(address.parse().ok()?, &asked) {
        Ok(outcome) => {
            println!("{}", serde_json::to_string(&outcome).expect("numbers are JSON"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// Runs the load against a server, on CPU 1.
pub fn run(network: &Network, server: &Server, asked: &Workload<'_>) -> Result<Outcome, Error> {
    prepared(network.client(env::current_exe()?), server, asked)()
}

/// Prepares the load for a command that ends with the bench's executable.
pub fn prepared(
    mut command: Command,
    server: &Server,
    asked: &Workload<'_>,
) -> impl FnOnce() -> Result<Outcome, Error> + Send + 'static {
    let Workload { directory, files, order, connections, seconds, rate, seed } = *asked;
    let address = server.address().to_string();
    command.args([LOAD, &address, directory, &files.to_string(), order.name()]);
    command.args([&connections.to_string(), &seconds.to_string(), &rate.unwrap_or(0.0).to_string()]);
    command.arg(seed.to_string());
    let (name, case) = (server.name(), directory.to_owned());
    move || {
        let output = command.output().map_err(|source| Error::Run { program: LOAD.into(), source })?;
        let printed = String::from_utf8_lossy(&output.stdout);
        match serde_json::from_str(printed.trim()) {
            Ok(outcome) if output.status.success() => Ok(outcome),
            _ => Err(Error::Load {
                server: name.into(),
                case,
                what: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// The requested file.
    file: usize,
    /// How many bytes of the answer are still to come, 0 before its head is read; none if no request is in flight.
    left: Option<usize>,
    /// When the request was due.
    since: Instant,
}

fn load(address: SocketAddr, asked: &Workload<'_>) -> io::Result<Outcome> {
    let Workload { directory, files, order, connections, seconds, rate, seed } = *asked;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut all = Vec::with_capacity(connections);
    for number in 0..connections {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&epoll, &stream, EventData::new_u64(number as u64), EventFlags::IN)?;
        all.push(Connection { stream, file: 0, left: None, since: Instant::now() });
    }
    let requests: Vec<String> = (0..files)
        .map(|number| format!("GET /{directory}/f{number}.bin HTTP/1.1\r\nHost: bench\r\n\r\n"))
        .collect();
    let start = Instant::now();
    let mut picker = Picker::new(order, files, seed);
    // The length of an answer, head and body, for each file; 0 if it is unknown.
    let mut lengths = vec![0; files];
    let mut ask = |connection: &mut Connection, due: Instant, lengths: &[usize]| {
        let file = picker.next();
        connection.file = file;
        connection.left =
            Some(if (picker.asked / files).is_multiple_of(LOOKED_AT) { 0 } else { lengths[file] });
        connection.since = due;
        connection.stream.write_all(requests[file].as_bytes())
    };
    let mut idle: Vec<usize> = Vec::new();
    let mut due = start;
    let gap = rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    match gap {
        None => all.iter_mut().try_for_each(|connection| ask(connection, start, &lengths))?,
        Some(_) => idle.extend(0..connections),
    }
    let mut outcome = Outcome::default();
    let mut took: Vec<u32> = Vec::new();
    let mut buffer = vec![0; DISCARD_BYTES];
    let mut events = Vec::with_capacity(256);
    while start.elapsed().as_secs_f64() < seconds {
        // At a limited rate, requests are due whether or not the server keeps up, and are timed from then.
        if let Some(gap) = gap {
            while due <= Instant::now() {
                let Some(number) = idle.pop() else { break };
                ask(&mut all[number], due, &lengths)?;
                due += gap;
            }
        }
        events.clear();
        let wait = Timespec { tv_sec: 0, tv_nsec: if gap.is_some() { 50_000 } else { 100_000_000 } };
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let event: &epoll::Event = event;
            let number = event.data.u64() as usize;
            let connection = &mut all[number];
            while let Some(left) = connection.left {
                let begun = left > 0;
                let (most, flags) = if begun {
                    (left.min(DISCARD_BYTES), RecvFlags::TRUNC)
                } else {
                    (HEAD_BYTES, RecvFlags::empty())
                };
                let count = match recv(&connection.stream, &mut buffer[..most], flags) {
                    Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok((_, count)) => count,
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                };
                let left = if begun { left } else { answer_length(&buffer[..count])? };
                if !begun {
                    let known = &mut lengths[connection.file];
                    if *known != 0 && *known != left {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, "answers of several lengths"));
                    }
                    *known = left;
                }
                outcome.bytes += count as u64;
                connection.left = Some(left - count);
                if left == count {
                    outcome.requests += 1;
                    let micros = connection.since.elapsed().as_micros();
                    took.push(u32::try_from(micros).unwrap_or(u32::MAX));
                    match gap {
                        None => ask(connection, Instant::now(), &lengths)?,
                        Some(_) => {
                            connection.left = None;
                            idle.push(number);
                        }
                    }
                    break;
                }
            }
        }
    }
    outcome.seconds = start.elapsed().as_secs_f64();
    took.sort_unstable();
    outcome.p99_us = took.get(took.len().saturating_sub(1) * 99 / 100).map_or(f64::NAN, |us| f64::from(*us));
    Ok(outcome)
}

/// The length of an answer, head and body. Its head arrives complete: servers send it in one piece.
fn answer_length(bytes: &[u8]) -> io::Result<usize> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "no answer with a file");
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut fields);
    let head = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) | Err(_) => return Err(invalid()),
    };
    let length = answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok());
    match (answer.code, length) {
        (Some(200), Some(length)) if bytes.len() <= head + length => Ok(head + length),
        _ => Err(invalid()),
    }
}
