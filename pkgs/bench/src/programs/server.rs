//! A process to measure.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::error::Error;
use crate::usage::{self, Usage};

/// How long a server may take until its first answer.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long a server may take to end after SIGTERM, before it and its children are killed.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How often a starting server is tried: the resolution of a measured start.
const PROBE_EVERY: Duration = Duration::from_micros(100);

/// How many workers a server has, and where it and its load run.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// Worker threads or processes.
    pub workers: usize,
    /// The one CPU that the server and its load share; all CPUs if absent.
    pub cpu: Option<usize>,
}

impl Placement {
    /// A command that runs `program` there.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(cpu) = self.cpu else { return Command::new(program) };
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(program);
        command
    }
}

/// A running server; if it was started here, it is stopped with all its children when dropped.
pub struct Server {
    name: &'static str,
    address: SocketAddr,
    process: Process,
}

/// Who started the process.
enum Process {
    /// We did: we have to handle its end and what it printed.
    Started { child: Child, output: File },
    /// Somebody else did: it is identified by its id, observed, and left alone.
    Found(u32),
}

impl Server {
    /// Starts `command` and waits until `address` answers a request, with any status.
    ///
    /// # Errors
    /// When it can't be started, ends early, or doesn't answer in time; with what it printed.
    pub fn start(name: &'static str, address: SocketAddr, command: &mut Command) -> Result<Self, Error> {
        let output = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let begin = Instant::now();
        let child = command.spawn().map_err(|source| Error::Run { program: name.into(), source })?;
        let mut server = Self { name, address, process: Process::Started { child, output } };
        while server.status("/").is_err() {
            if let Process::Started { child, .. } = &mut server.process
                && let Some(status) = child.try_wait()?
            {
                return Err(Error::Failed { program: name.into(), status, output: server.printed() });
            }
            if begin.elapsed() > READY_WITHIN {
                return Err(Error::NotReady {
                    server: name.into(),
                    waited: READY_WITHIN,
                    output: server.printed(),
                });
            }
            std::thread::sleep(PROBE_EVERY);
        }
        Ok(server)
    }

    /// A server that is already running as process `pid`, and keeps running.
    pub fn running(name: &'static str, address: SocketAddr, pid: u32) -> Self {
        Self { name, address, process: Process::Found(pid) }
    }

    /// The process, which may have children.
    pub fn process_id(&self) -> u32 {
        match &self.process {
            Process::Started { child, .. } => child.id(),
            Process::Found(pid) => *pid,
        }
    }

    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it and its children have used so far.
    pub fn usage(&self) -> Result<Usage, Error> {
        Ok(Usage::of_tree(self.process_id())?)
    }

    /// Requests `path` once, which must be answered with `expected`.
    pub fn expect(&self, path: &str, expected: u16) -> Result<(), Error> {
        match self.status(path) {
            Ok(found) if found == expected => Ok(()),
            Ok(found) => Err(Error::Answer { server: self.name.into(), path: path.into(), expected, found }),
            Err(source) => Err(Error::Request { server: self.name.into(), source }),
        }
    }

    /// Requests each of `paths` once, which must all be answered with `expected`.
    pub fn visit(&self, paths: &[String], expected: u16) -> Result<(), Error> {
        let all = paths.iter().map(String::as_str);
        let met = Client::connect(self.address)
            .and_then(|mut client| client.visit(all, expected))
            .map_err(|source| Error::Request { server: self.name.into(), source })?;
        if met == paths.len() {
            return Ok(());
        }
        let what = format!("{} of {} answers were no {expected}", paths.len() - met, paths.len());
        Err(Error::Load { server: self.name.into(), case: "visit".into(), what })
    }

    fn status(&self, path: &str) -> io::Result<u16> {
        Client::connect(self.address)?.status(path)
    }

    fn printed(&mut self) -> String {
        let Process::Started { output, .. } = &mut self.process else { return String::new() };
        let mut text = String::new();
        // Best effort: this is only the detail of an error that is reported anyway.
        let _ = output.rewind().and_then(|()| output.read_to_string(&mut text));
        text.trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Process::Started { child, .. } = &mut self.process else { return };
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        let children = usage::descendants(child.id());
        signal(child.id(), Signal::TERM);
        let deadline = Instant::now() + STOP_WITHIN;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                // Children first: once orphaned, they couldn't be told apart from others.
                children.into_iter().for_each(|pid| signal(pid, Signal::KILL));
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile, which is what the signal is for.
        let _ = kill_process(pid, signal);
    }
}

/// Ports that Linux does not assign itself, unless `ip_local_port_range`, which starts at 32768, was changed.
const PORTS: Range<u32> = 10_000..32_768;

/// How many of them have to be left where that range starts earlier; otherwise it is shared with the kernel.
const PORTS_LEFT: u32 = 2_000;

/// How many of them a process uses before it reaches the ports of the process with the next id.
const PORTS_EACH: u32 = 61;

/// A loopback address that nobody uses at present, neither for TCP nor for UDP. If the kernel chose the port, it might
/// give it to others too until the started program listens there: to a client, and the program could not listen; or to
/// a server, which would be mistaken for it.
///
/// # Errors
/// When none is free.
pub fn free_address() -> io::Result<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    let ports = ports();
    for _ in ports.clone() {
        let number = std::process::id().wrapping_mul(PORTS_EACH).wrapping_add(NEXT.fetch_add(1, Relaxed));
        let port = ports.start + number % (ports.end - ports.start);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
        match TcpListener::bind(address).and_then(|_| UdpSocket::bind(address)) {
            Ok(_) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The first port that the kernel assigns (Documentation/networking/ip-sysctl.rst, `ip_local_port_range`).
fn kernels_first() -> u32 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(PORTS.end)
}

/// Those of [`PORTS`] that the kernel does not assign here, if they are enough.
fn ports() -> Range<u32> {
    let end = PORTS.end.min(kernels_first());
    if end < PORTS.start + PORTS_LEFT { PORTS } else { PORTS.start..end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn an_address_is_outside_the_range_of_the_kernel() {
        if kernels_first() < PORTS.start + PORTS_LEFT {
            return crate::skipped(
                "an_address_is_outside_the_range_of_the_kernel",
                "the kernel assigns nearly all ports here",
            );
        }
        for _ in 0..100 {
            let address = free_address().expect("a port is free");
            assert!(u32::from(address.port()) < kernels_first(), "{address}");
        }
    }

    #[test]
    fn an_address_is_free_for_datagrams_too() {
        // The next port of this process, and the one after it, are taken for UDP alone.
        let next = free_address().expect("a port is free").port() + 1;
        let taken = [next, next + 1].map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)));
        for _ in 0..2 {
            let address = free_address().expect("a port is free");
            UdpSocket::bind(address).expect("nobody has it");
        }
        drop(taken);
    }

    #[test]
    fn a_server_that_ends_early_is_reported_with_what_it_said() {
        let address = free_address().expect("a port is free");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no licence >&2; exit 3"]);
        let Err(Error::Failed { status, output, .. }) = Server::start("broken", address, &mut command) else {
            panic!("it ended, and nobody listens");
        };
        assert_eq!((status.code(), output.as_str()), (Some(3), "no licence"));
    }

    #[test]
    fn dropping_a_server_ends_it() {
        // A listener of ours stands in for the server's.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the harness asks");
            stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\n").expect("the harness reads");
            io::copy(&mut stream, &mut io::sink()).expect("the harness closes");
        });
        let server = Server::start("sleeper", address, Command::new("sleep").arg("60")).expect("it runs");
        answering.join().expect("the harness was answered");
        let pid = server.process_id();
        let begin = Instant::now();
        drop(server);
        assert!(begin.elapsed() < STOP_WITHIN);
        assert!(Usage::of_tree(pid).is_err(), "no such process any more");
    }
}
