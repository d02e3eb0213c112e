//! The server under test.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bench::server::free_address;
use rustls::pki_types::CertificateDer;
use testkit::{Launch, Metrics, binary};

use crate::load::PATIENCE;
use crate::raw::Raw;

/// Ticks of CPU time per second, on every Linux.
pub const TICKS: u64 = 100;

/// A running server; killed when dropped.
pub struct Server {
    process: testkit::Server,
    /// HTTP/1.1 and HTTP/2 without TLS.
    pub clear: SocketAddr,
    /// HTTP/1.1, HTTP/2 and, over UDP, HTTP/3.
    pub secure: SocketAddr,
    /// Its certificate's files, which can be replaced.
    pub certificate: Arc<Certificate>,
}

impl Server {
    /// Starts one with these additional arguments, and waits until it listens.
    pub fn start(arguments: &[&str]) -> Self {
        Self::run(program(), arguments, Files::new())
    }

    /// The same with a command that takes the program and its arguments.
    pub fn start_by(command: Command) -> Self {
        Self::run(testkit::Server::by(command).arg(path()), &[], Files::new())
    }

    /// The same, with this many files at most.
    pub fn start_with_files(files: u32, arguments: &[&str]) -> Self {
        let limit = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        Self::run(testkit::Server::program("sh").args(["-c", &limit]).arg(path()), arguments, Files::new())
    }

    /// The same with environment variables.
    pub fn start_with(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let program = variables.iter().fold(program(), |program, (name, value)| program.env(name, value));
        Self::run(program, arguments, Files::new())
    }

    /// The same, on ports that are known beforehand, as for a server that has a name.
    pub fn start_on_ports(arguments: &[&str]) -> Self {
        let listen = [(); 2].map(|()| free_address().expect("a port is free").to_string());
        Self::run(program(), arguments, Files { listen, ..Files::new() })
    }

    /// Starts one that takes the place of this, which may then end.
    pub fn successor(&self, arguments: &[&str]) -> Self {
        let addresses = [self.clear, self.secure].map(|address| address.to_string());
        let files = Files { certificate: Arc::clone(&self.certificate), listen: addresses };
        Self::run(program(), arguments, files)
    }

    fn run(launch: Launch, arguments: &[&str], files: Files) -> Self {
        let Files { certificate, listen: [clear, secure] } = files;
        let process = launch
            .args(["--listen", &clear, "--listen-tls", &secure, "--certificate"])
            .arg(certificate.chain())
            .arg("--key")
            .arg(certificate.key())
            .args(arguments)
            .lines(2)
            .start();
        let addresses: Vec<_> =
            process.said().lines().map(|line| line.parse().expect("an address")).collect();
        Self { clear: addresses[0], secure: addresses[1], process, certificate }
    }

    /// Its metrics.
    pub fn metrics(&self) -> Metrics {
        let mut raw = Raw::connect(self.clear);
        let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        raw.send(request).expect("the server listens");
        Metrics::new(String::from_utf8(raw.rest()).expect("text"))
    }

    /// Waits for a condition on its metrics.
    pub fn until(&self, condition: impl Fn(&Metrics) -> bool) {
        let begun = Instant::now();
        loop {
            let metrics = self.metrics();
            if condition(&metrics) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", metrics.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The CPU time it has used, in [`TICKS`] of a second.
    pub fn time(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("it runs");
        // proc_pid_stat(5): utime and stime are the 14th and 15th fields; the 2nd, the name, ends with a bracket.
        let (_, rest) = text.rsplit_once(") ").expect("a name");
        rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }
}

impl Deref for Server {
    type Target = testkit::Server;

    fn deref(&self) -> &testkit::Server {
        &self.process
    }
}

/// The files that a server is started with.
struct Files {
    certificate: Arc<Certificate>,
    listen: [String; 2],
}

impl Files {
    fn new() -> Self {
        let any = "127.0.0.1:0".to_owned();
        Self { certificate: Arc::new(Certificate::new()), listen: [any.clone(), any] }
    }
}

/// The server's program, beside which this test was built.
fn program() -> Launch {
    testkit::Server::program(path())
}

fn path() -> PathBuf {
    binary("examples/interop")
}

/// A self-signed certificate for `localhost`, in files.
pub struct Certificate {
    directory: tempfile::TempDir,
    all: Mutex<Vec<CertificateDer<'static>>>,
}

impl Certificate {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let certificate = Self { directory, all: Mutex::default() };
        certificate.renew();
        certificate
    }

    /// Its chain.
    pub fn chain(&self) -> PathBuf {
        self.directory.path().join("chain.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    /// All certificates so far. The last one is in the files now.
    pub fn all(&self) -> Vec<CertificateDer<'static>> {
        self.all.lock().expect("no panic").clone()
    }

    /// Replaces it with another.
    pub fn renew(&self) {
        let made = testkit::certificate(&["localhost", "127.0.0.1"]);
        made.write(self.chain(), self.key());
        self.all.lock().expect("no panic").push(made.cert.der().clone());
    }
}
