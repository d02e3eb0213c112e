//! The real `linerate-links serve` on free loopback ports, and its API.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::http::{Answer, Client};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_linerate-links");

/// These tests measure time and load the machine: one after the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A random number below a bound.
pub fn random(bound: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % bound
}

/// A database and what servers on it say.
pub struct Place {
    pub database: PathBuf,
    token: OnceCell<String>,
    directory: tempfile::TempDir,
}

impl Place {
    /// A new database in a temporary directory.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { database: directory.path().join("links.db"), token: OnceCell::new(), directory }
    }

    /// A new database in `directory`.
    pub fn within(directory: &Path) -> Self {
        Self { database: directory.join("links.db"), ..Self::new() }
    }

    /// Starts a server with these flags on top, and waits until it answers.
    pub fn serve(&self, flags: &[&str]) -> Server {
        let errors = self.directory.path().join("stderr");
        let mut process = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--database"])
            .arg(&self.database)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).expect("a writable temporary directory"))
            .spawn()
            .expect("the binary runs");
        let mut output = process.stdout.take().expect("it is piped");
        // All lines come in one write.
        let mut buffer = [0; 4096];
        let count = output.read(&mut buffer).expect("a pipe can be read");
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let address = |name: &str| -> SocketAddr {
            line(name)
                .and_then(|line| line.strip_prefix("http://")?.split('/').next()?.parse().ok())
                .unwrap_or_else(|| {
                    let errors = std::fs::read_to_string(&errors).unwrap_or_default();
                    panic!("the server said {text:?} and {errors:?}")
                })
        };
        let (public, admin) = (address("links "), address("admin "));
        if let Some(token) = line("token ") {
            let _ = self.token.set(token.to_owned());
        }
        let token = self.token.get().expect("the first start prints a token").clone();
        Server { process, public, admin, token }
    }

    /// Runs another command on the database.
    pub fn command(&self, arguments: &[&str]) -> io::Result<std::process::Output> {
        Command::new(BINARY).args(arguments).arg("--database").arg(&self.database).output()
    }
}

/// A running server; killed when dropped.
pub struct Server {
    process: Child,
    pub public: SocketAddr,
    pub admin: SocketAddr,
    token: String,
}

impl Server {
    /// A connection to the public listener.
    pub fn connect(&self) -> Client {
        Client::connect(self.public).expect("the server listens")
    }

    /// A connection to the API.
    pub fn api(&self) -> Api {
        let client = Client::connect(self.admin).expect("the server listens");
        Api {
            client,
            fields: format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", self.token),
        }
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it is a child");
    }

    /// Tells it to stop.
    pub fn terminate(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).expect("it runs");
    }

    /// Waits until it has stopped of its own.
    pub fn wait(mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.process.try_wait().expect("it is a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "still running after {limit:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it in good order.
    pub fn stop(self) {
        self.terminate();
        assert!(self.wait(Duration::from_secs(15)).success());
    }

    /// Resident memory, in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection to the API, with a token.
pub struct Api {
    client: Client,
    fields: String,
}

impl Api {
    fn request(&mut self, method: &str, path: &str, body: &str) -> io::Result<Answer> {
        self.client.request(method, &format!("/api/v1/links{path}"), &self.fields, body)
    }

    /// Creates a link.
    pub fn create(&mut self, code: &str, target: &str) -> io::Result<u16> {
        let body = serde_json::json!({ "code": code, "target": target }).to_string();
        Ok(self.request("POST", "", &body)?.status)
    }

    /// Applies a merge patch.
    pub fn edit(&mut self, code: &str, patch: &serde_json::Value) -> io::Result<u16> {
        Ok(self.request("PATCH", &format!("/{code}"), &patch.to_string())?.status)
    }

    /// Deletes a link.
    pub fn delete(&mut self, code: &str) -> io::Result<u16> {
        Ok(self.request("DELETE", &format!("/{code}"), "")?.status)
    }

    /// The clicks of a link that are stored by now.
    pub fn clicks(&mut self, code: &str) -> u64 {
        let answer = self.request("GET", &format!("/{code}"), "").expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let link: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        link["clicks"].as_u64().expect("a count")
    }
}
