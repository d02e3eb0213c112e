//! A directory and a database, and the real server on them.

#[path = "patience.rs"]
mod patience;

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bench::postgres::{Durability, Postgres};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Metrics, wait_for};

use crate::client::{Answer, Client};

use patience::PATIENT;

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_linerate-api");

/// Makes a test from each function for each kind of database.
macro_rules! on_each_database {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $test() { super::$test(&crate::place::Place::new()); })*
        }
        mod postgresql {
            $(#[test] fn $test() { super::$test(&crate::place::Place::on_postgresql()); })*
        }
    };
}

/// A directory and a database.
pub struct Place {
    directory: TempDir,
    database: String,
    /// The server of the database, if tests share it.
    postgres: Option<Arc<Postgres>>,
}

/// The PostgreSQL that all concurrently running tests share; the last one stops it.
fn shared() -> Arc<Postgres> {
    static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let settings = ["max_connections=200"];
        let server = Arc::new(Postgres::start(Durability::None, &settings).expect("PostgreSQL starts"));
        *shared = Arc::downgrade(&server);
        server
    })
}

impl Place {
    /// An empty directory, with an SQLite database in it.
    pub fn new() -> Self {
        let directory = directory();
        let database = format!("sqlite:{}", directory.path().join("users.db").display());
        Self { directory, database, postgres: None }
    }

    /// An empty directory, and an empty PostgreSQL database.
    pub fn on_postgresql() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = shared();
        let name = format!("place{}", COUNT.fetch_add(1, Ordering::Relaxed));
        server.create_database(&name).expect("PostgreSQL answers");
        Self { directory: directory(), database: server.url(&name), postgres: Some(server) }
    }

    /// An empty directory, and a database elsewhere.
    pub fn on(database: String) -> Self {
        Self { directory: directory(), database, postgres: None }
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The database's URL.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Changes the database without the service.
    pub fn execute(&self, sql: &str) {
        if let Some(server) = &self.postgres {
            let (_, name) = self.database.rsplit_once('/').expect("a URL");
            server.execute(name, sql).expect("PostgreSQL answers");
        } else {
            let database = rusqlite::Connection::open(self.path("users.db")).expect("it opens");
            database.execute_batch(sql).expect("it is written");
        }
    }

    /// Runs a command on the database.
    pub fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(arguments).env("LINERATE_API_DATABASE_URL", self.database());
        command.output().expect("the binary runs")
    }

    /// Creates an API key.
    pub fn key(&self, scope: &str, flags: &[&str]) -> String {
        let output = self.command(&[&["key", "add", "test", "--scope", scope], flags].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// The message of a server that doesn't start.
    pub fn refused(&self, flags: &[&str]) -> (Option<i32>, String) {
        let output = self.command(&[&["serve"], flags].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Starts a server with these additional flags.
    pub fn serve(&self, flags: &[&str]) -> Server {
        self.serve_by(Command::new(BINARY), flags)
    }

    /// The same with a command that ends with the binary's name.
    pub fn serve_by(&self, command: Command, flags: &[&str]) -> Server {
        // There can be only one admin listener.
        let admin = if flags.contains(&"--admin") { &[][..] } else { &["--admin", "127.0.0.1:0"] };
        // A test may set others.
        let patient = PATIENT.chunks(2).filter(|pair| !flags.contains(&pair[0])).flatten();
        let process = testkit::Server::by(command)
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "2"])
            .args(admin)
            .args(patient)
            .args(flags)
            .env("LINERATE_API_DATABASE_URL", self.database())
            .start();
        let public = process.listens("api", "http");
        let secure = process.address_by("api", "https");
        let admin = process.address("admin").expect("an admin listener");
        Server { process, public, secure, admin }
    }
}

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

/// A running server; killed when dropped.
pub struct Server {
    process: testkit::Server,
    pub public: SocketAddr,
    /// The address with TLS, if TLS is on.
    pub secure: Option<SocketAddr>,
    pub admin: SocketAddr,
}

impl Deref for Server {
    type Target = testkit::Server;

    fn deref(&self) -> &testkit::Server {
        &self.process
    }
}

impl Server {
    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.public)
    }

    /// The answer to a request on a new connection, with further header lines, each with its line end.
    pub fn ask(&self, method: &str, target: &str, fields: &str, body: &str) -> Answer {
        ask(&mut self.connect(), method, target, fields, body)
    }

    /// The same with a JSON body.
    pub fn send(&self, method: &str, target: &str, fields: &str, body: &Value) -> Answer {
        let fields = format!("Content-Type: application/json\r\n{fields}");
        self.ask(method, target, &fields, &body.to_string())
    }

    /// The answer to a GET.
    pub fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "", "")
    }

    /// Creates a user with this email and returns it.
    pub fn create(&self, email: &str) -> Value {
        let answer = self.send("POST", "/v1/users", "", &user(email));
        assert_eq!(answer.status, 201, "{}", answer.text());
        value(&answer)
    }

    /// Creates a user on a database that may be slow or away, and returns its path. What was given up may have been
    /// written, so each try has its own email. `refused` gets the answers to those that fail.
    pub fn create_eventually(&self, name: &str, fields: &str, refused: impl Fn(&Answer)) -> String {
        let mut tries = 0;
        wait_for("a user is created", || {
            tries += 1;
            let answer = self.send("POST", "/v1/users", fields, &user(&format!("{name}{tries}@example.org")));
            if answer.status != 201 {
                refused(&answer);
                return None;
            }
            Some(answer.field("location").expect("where it is"))
        })
    }

    /// The value of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        Metrics::new(self.metrics()).value(name)
    }

    /// All metrics, as text.
    pub fn metrics(&self) -> String {
        ask(&mut Client::connect(self.admin), "GET", "/metrics", "", "").text().to_owned()
    }
}

/// The answer to a request.
pub fn ask(client: &mut Client, method: &str, target: &str, fields: &str, body: &str) -> Answer {
    let length = match body.is_empty() {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{length}{fields}\r\n{body}"));
    client.receive(method != "HEAD").unwrap_or_else(|error| panic!("{method} {target} {fields:?}: {error}"))
}

/// A user with this email, with something of everything.
pub fn user(email: &str) -> Value {
    json!({
        "email": email, "name": format!("Name of {email}"),
        "profile": {"given_name": "Ada", "birth_date": "1815-12-10", "bio": "Wrote \"programs\"\né😀"},
        "addresses": [{"label": "home", "street": "Street 1", "city": "Vienna", "country": "AT", "latitude": 48.2}],
        "tags": ["one", "two"],
        "preferences": {"theme": "dark", "mail": {"daily": true, "hours": [8, 20]}}
    })
}

/// An answer's body as JSON.
pub fn value(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Checks for a problem with this status, and returns the pointers to the faults.
pub fn problem(answer: &Answer, status: u16) -> Vec<String> {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.field("content-type").as_deref(), Some("application/problem+json"));
    let problem = value(answer);
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().map(|error| error["pointer"].as_str().expect("a pointer").to_owned()).collect()
}
