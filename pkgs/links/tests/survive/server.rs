//! The real `linerate-links serve` on free loopback ports, and its API.

use std::cell::OnceCell;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use testkit::until;

use crate::http::{Answer, Client};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_linerate-links");

/// These tests measure time and load the machine, so they run one after the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A random number below a bound.
pub fn random(bound: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % bound
}

/// A database, and servers that use it.
pub struct Place {
    pub database: PathBuf,
    token: OnceCell<String>,
    _directory: tempfile::TempDir,
}

impl Place {
    /// A new database in a temporary directory.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { database: directory.path().join("links.db"), token: OnceCell::new(), _directory: directory }
    }

    /// An existing database, such as a PostgreSQL one.
    pub fn at(database: impl Into<PathBuf>) -> Self {
        Self { database: database.into(), ..Self::new() }
    }

    /// A new database in `directory`.
    pub fn within(directory: &Path) -> Self {
        Self { database: directory.join("links.db"), ..Self::new() }
    }

    /// Starts a server with these additional flags, and waits until it answers.
    pub fn serve(&self, flags: &[&str]) -> Server {
        let process = testkit::Server::program(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--database"])
            .arg(&self.database)
            .args(flags)
            .start();
        let public = process.listens("links", "http");
        let admin = process.address("admin").expect("an admin listener");
        let secure = process.address_by("links", "https");
        if let Some(token) = process.line("token") {
            let _ = self.token.set(token.to_owned());
        }
        let token = self.token.get().expect("the first start prints a token").clone();
        Server { process, public, secure, admin, token }
    }

    /// Runs another command on the database.
    pub fn command(&self, arguments: &[&str]) -> io::Result<std::process::Output> {
        Command::new(BINARY).args(arguments).arg("--database").arg(&self.database).output()
    }
}

/// A running server. It is killed when dropped.
pub struct Server {
    process: testkit::Server,
    pub public: SocketAddr,
    /// The server's TLS address, if it has one.
    pub secure: Option<SocketAddr>,
    pub admin: SocketAddr,
    /// A token for the API.
    pub token: String,
}

impl Deref for Server {
    type Target = testkit::Server;

    fn deref(&self) -> &testkit::Server {
        &self.process
    }
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

    /// Whether the server has printed this on standard output.
    pub fn says(&self, text: &str) -> bool {
        self.said().contains(text)
    }

    /// Waits until the server has logged this.
    pub fn wait_for_log(&self, text: &str) {
        until(text, || self.log().contains(text));
    }

    /// Sends SIGTERM to the server.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }
}

/// A connection to the API, with a token.
pub struct Api {
    client: Client,
    fields: String,
}

impl Api {
    /// The answer to any request below `/api/v1/links`.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> io::Result<Answer> {
        self.client.request(method, &format!("/api/v1/links{path}"), &self.fields, body)
    }

    /// The answer to any request below `/api/v1/domains`.
    pub fn ask_domains(&mut self, method: &str, path: &str, body: &str) -> io::Result<Answer> {
        self.client.request(method, &format!("/api/v1/domains{path}"), &self.fields, body)
    }

    /// Creates a link.
    pub fn create(&mut self, code: &str, target: &str) -> io::Result<u16> {
        self.add(&serde_json::json!({ "code": code, "target": target }))
    }

    /// Creates a link of any kind.
    pub fn add(&mut self, link: &serde_json::Value) -> io::Result<u16> {
        Ok(self.ask("POST", "", &link.to_string())?.status)
    }

    /// Applies a merge patch.
    pub fn edit(&mut self, code: &str, patch: &serde_json::Value) -> io::Result<u16> {
        Ok(self.ask("PATCH", &format!("/{code}"), &patch.to_string())?.status)
    }

    /// Deletes a link.
    pub fn delete(&mut self, code: &str) -> io::Result<u16> {
        Ok(self.ask("DELETE", &format!("/{code}"), "")?.status)
    }

    /// The clicks of a link that are stored by now.
    pub fn clicks(&mut self, code: &str) -> u64 {
        let answer = self.ask("GET", &format!("/{code}"), "").expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let link: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        link["clicks"].as_u64().expect("a count")
    }
}
