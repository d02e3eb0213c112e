//! The server under test.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;

use crate::load::PATIENCE;
use crate::raw::Raw;

/// Ticks of the processor's time in a second, on every Linux there is.
pub const TICKS: u64 = 100;

/// A running server; killed when dropped.
pub struct Server {
    process: Child,
    /// HTTP/1.1 and HTTP/2 in the clear.
    pub clear: SocketAddr,
    /// HTTP/1.1, HTTP/2 and, over UDP, HTTP/3.
    pub secure: SocketAddr,
    /// Where its certificate is, to be replaced.
    pub certificate: Arc<Certificate>,
}

impl Server {
    /// Starts one with these arguments on top, and waits until it listens.
    pub fn start(arguments: &[&str]) -> Self {
        Self::run(Command::new(program()), arguments, Files::new())
    }

    /// The same by a command that takes the program and its arguments.
    pub fn start_by(mut command: Command) -> Self {
        command.arg(program());
        Self::run(command, &[], Files::new())
    }

    /// The same, with so many files at most.
    pub fn start_with_files(files: u32, arguments: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(program());
        Self::run(shell, arguments, Files::new())
    }

    /// The same, with what it says on stderr in a file.
    pub fn start_with_log(log: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program());
        command.stderr(File::create(log).expect("a writable directory")).envs(variables.iter().copied());
        Self::run(command, arguments, Files::new())
    }

    /// The same, on ports that are known beforehand, as of a server that has a name.
    pub fn start_on_ports(arguments: &[&str]) -> Self {
        // Free for UDP too.
        let free = || loop {
            let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = tcp.local_addr().expect("an address");
            if std::net::UdpSocket::bind(address).is_ok() {
                break address;
            }
        };
        let listen = [free(), free()].map(|address| address.to_string());
        Self::run(Command::new(program()), arguments, Files { listen, ..Files::new() })
    }

    /// Starts one that takes the place of this, which may then end.
    pub fn successor(&self, arguments: &[&str]) -> Self {
        let addresses = [self.clear, self.secure].map(|address| address.to_string());
        let files = Files { certificate: Arc::clone(&self.certificate), listen: addresses };
        Self::run(Command::new(program()), arguments, files)
    }

    fn run(mut command: Command, arguments: &[&str], files: Files) -> Self {
        let Files { certificate, listen: [clear, secure] } = files;
        let mut process = command
            .args(["--listen", &clear, "--listen-tls", &secure, "--certificate"])
            .arg(certificate.chain())
            .arg("--key")
            .arg(certificate.key())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server runs");
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut address = || {
            let line = lines.next().expect("the server says where it listens").expect("a line");
            line.parse().unwrap_or_else(|_| panic!("{line:?} is not an address"))
        };
        let (clear, secure) = (address(), address());
        Self { process, clear, secure, certificate }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it counts.
    pub fn metrics(&self) -> Metrics {
        let mut raw = Raw::connect(self.clear);
        let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        raw.send(request).expect("the server listens");
        Metrics(String::from_utf8(raw.rest()).expect("text"))
    }

    /// Waits for a condition on what it counts.
    pub fn until(&self, condition: impl Fn(&Metrics) -> bool) {
        let begun = Instant::now();
        loop {
            let metrics = self.metrics();
            if condition(&metrics) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", metrics.0);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The memory it uses, in KiB.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most memory it has used, in KiB.
    pub fn most_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// A figure of `/proc/PID/status` (proc_pid_status(5)).
    fn status(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// The processor's time it has used, in [`TICKS`] of a second.
    pub fn time(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("it runs");
        // proc_pid_stat(5): utime and stime are the 14th and 15th fields; the 2nd, the name, ends with a bracket.
        let (_, rest) = text.rsplit_once(") ").expect("a name");
        rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    /// Waits for its end, which somebody has asked for.
    pub fn wait(mut self) -> ExitStatus {
        self.process.wait().expect("it is a child")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a server is started with.
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

/// What a server counts.
pub struct Metrics(String);

impl Metrics {
    /// The sum of those whose names begin so.
    pub fn sum(&self, name: &str) -> f64 {
        let lines = self.0.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }
}

/// The server's program, beside which this test was built.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let this = std::env::current_exe().expect("this test has a path");
        let profile = this.ancestors().nth(2).expect("it is in the deps directory of a profile");
        let program = profile.join("examples").join("interop");
        assert!(program.exists(), "no {}: run 'cargo test' without --test", program.display());
        program
    })
}

/// A certificate for `localhost` that signs itself, in files.
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

    /// All there have been, the last of which is in the files now.
    pub fn all(&self) -> Vec<CertificateDer<'static>> {
        self.all.lock().expect("no panic").clone()
    }

    /// Replaces it by another.
    pub fn renew(&self) {
        let made = testkit::certificate(&["localhost", "127.0.0.1"]);
        made.write(self.chain(), self.key());
        self.all.lock().expect("no panic").push(made.cert.der().clone());
    }
}
