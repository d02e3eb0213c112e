//! The services, as processes.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
pub use testkit::binary;
use testkit::{Launch, Server, wait_for};

use crate::client::{Answer, Client};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A temporary directory, and the files in it.
#[derive(Debug)]
pub struct Place(TempDir);

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same path as text.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// Writes a file in it.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Flags for a TLS listener on a free port, with a new certificate for `localhost`.
    #[must_use]
    pub fn tls_flags(&self) -> Vec<String> {
        let [cert, key] = testkit::certificate(&["localhost"]).write_in(self.0.path());
        ["--tls-listen", "127.0.0.1:0", "--cert", &cert, "--key", &key].map(str::to_owned).to_vec()
    }
}

/// A running service; killed when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    server: Server,
}

impl Deref for Program {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Program {
    /// Starts `linerate-NAME serve` in `place` with these flags and waits until it serves.
    ///
    /// # Panics
    /// When it doesn't start.
    #[must_use]
    pub fn serve(name: &str, place: &Place, flags: &[&str]) -> Self {
        Self::serve_with(name, place, flags, &[])
    }

    /// The same with these environment variables, and without those of systemd.
    ///
    /// # Panics
    /// When it doesn't start.
    #[must_use]
    pub fn serve_with(name: &str, place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        Self { name: name.to_owned(), server: launch(name, place, flags, variables).start() }
    }

    /// The same for a program that may end at once.
    ///
    /// # Panics
    /// When it can't be run.
    #[must_use]
    pub fn try_serve(name: &str, place: &Place, flags: &[&str]) -> Self {
        Self { name: name.to_owned(), server: launch(name, place, flags, &[]).start_or_end() }
    }

    /// The kernel's id of the thread with this name, once the thread exists.
    ///
    /// # Panics
    /// When it doesn't appear.
    #[must_use]
    pub fn thread(&self, name: &str) -> i32 {
        wait_for(&format!("a thread {name:?} of {}", self.name), || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).ok()?;
            let mut named = tasks.filter_map(Result::ok).filter(|task| {
                fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
            });
            named.next()?.file_name().to_str()?.parse().ok()
        })
    }

    /// Checks that it still runs.
    ///
    /// # Panics
    /// When it has ended.
    pub fn assert_runs(&self, after: &str) {
        let ended = self.has_ended();
        assert!(ended.is_none(), "{} ended after {after}: {ended:?} {}", self.name, self.log());
    }

    /// The result of a request. If there is none, panics and says whether the program has ended.
    ///
    /// # Panics
    /// When there is no result.
    pub fn answered<T>(&self, to: &str, answer: std::io::Result<T>) -> T {
        answer.unwrap_or_else(|error| {
            // A killed process takes a while to disappear.
            std::thread::sleep(Duration::from_millis(500));
            self.assert_runs(to);
            panic!("{}: {error}, after {to}: {}", self.name, self.log());
        })
    }

    /// How many sockets it has open.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn sockets(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.id())).expect("it runs");
        let is_socket =
            |path: PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        files.filter_map(Result::ok).filter(|file| is_socket(file.path())).count()
    }
}

fn launch(name: &str, place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> Launch {
    let mut command = Command::new(binary(format!("linerate-{name}")));
    for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(variable);
    }
    command.envs(variables.iter().copied()).current_dir(place.0.path());
    Server::by(command).arg("serve").args(flags)
}

/// Runs a program of this workspace to its end.
///
/// # Panics
/// When it can't be run.
#[must_use]
pub fn run(name: &str, arguments: &[&str]) -> Output {
    Command::new(binary(name)).args(arguments).stdin(Stdio::null()).output().expect("the program runs")
}

/// Whether `linerate-NAME serve` knows a flag.
#[must_use]
pub fn knows(name: &str, flag: &str) -> bool {
    let help = run(&format!("linerate-{name}"), &["serve", "--help"]);
    String::from_utf8_lossy(&help.stdout).split_whitespace().any(|word| word.trim_end_matches(',') == flag)
}

/// Raises this process's limit of open files as far as allowed.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The answer to one request on a new connection.
///
/// # Errors
/// When there is none.
pub fn ask(
    address: SocketAddr,
    method: &str,
    target: &str,
    fields: &str,
    body: &[u8],
) -> std::io::Result<Answer> {
    Client::connect(address)?.ask(method, target, fields, body)
}

/// The directory of the repository.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
