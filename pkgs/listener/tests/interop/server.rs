//! The server under test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

/// A running server; killed when dropped.
pub struct Server {
    process: Child,
    /// HTTP/1.1 and HTTP/2 in the clear.
    pub clear: SocketAddr,
    /// HTTP/1.1, HTTP/2 and, over UDP, HTTP/3.
    pub secure: SocketAddr,
    /// Where its certificate is, to be replaced.
    pub certificate: Certificate,
}

impl Server {
    /// Starts one with these arguments on top, and waits until it listens.
    pub fn start(arguments: &[&str]) -> Self {
        let certificate = Certificate::new();
        let mut process = Command::new(program())
            .args(["--listen", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", "--certificate"])
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
}

impl Certificate {
    fn new() -> Self {
        let certificate = Self { directory: tempfile::tempdir().expect("a temporary directory") };
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

    /// Replaces it by another.
    pub fn renew(&self) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        std::fs::write(self.chain(), made.cert.pem()).expect("a writable directory");
        std::fs::write(self.key(), made.signing_key.serialize_pem()).expect("a writable directory");
    }
}
