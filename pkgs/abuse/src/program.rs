//! The services, as processes.

use std::fs::{self, File};
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tempfile::TempDir;
use testkit::wait_for;

use crate::client::{Answer, Client};

/// Longer than anything takes on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The path of a program of this workspace, which cargo puts two directories above a test's own.
///
/// # Panics
/// Where it has not been built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let path = test.ancestors().nth(2).expect("tests are in target/PROFILE/deps").join(name);
    assert!(
        path.is_file(),
        "{} is not there: build it with 'cargo build --bins', in the profile of this test",
        path.display()
    );
    path
}

/// A directory of its own, and what is in it.
#[derive(Debug)]
pub struct Place(TempDir);

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same as text.
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

    /// Flags for a TLS listener on a free port, with a certificate for `localhost` of its own.
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
    child: Child,
    said: String,
    errors: PathBuf,
}

impl Program {
    /// Starts `linerate-NAME serve` with these flags and waits until it serves. What it has on standard error goes to a
    /// file in `place`.
    ///
    /// # Panics
    /// Where it does not come up.
    #[must_use]
    pub fn serve(name: &str, place: &Place, flags: &[&str]) -> Self {
        Self::serve_with(name, place, flags, &[])
    }

    /// The same with these variables in its environment, and none of systemd's beside them.
    ///
    /// # Panics
    /// Where it does not come up.
    #[must_use]
    pub fn serve_with(name: &str, place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let program = Self::try_serve_with(name, place, flags, variables);
        assert!(!program.said.is_empty(), "{name} did not start: {}", program.complaints());
        program
    }

    /// The same where it may end at once.
    ///
    /// # Panics
    /// Where it cannot be run.
    #[must_use]
    pub fn try_serve(name: &str, place: &Place, flags: &[&str]) -> Self {
        Self::try_serve_with(name, place, flags, &[])
    }

    fn try_serve_with(name: &str, place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let errors = place.path(&format!("stderr-{name}-{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new(binary(&format!("linerate-{name}")));
        for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(variable);
        }
        let mut child = command
            .arg("serve")
            .args(flags)
            .envs(variables.iter().copied())
            .current_dir(place.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).expect("a file"))
            .spawn()
            .expect("the program runs");
        // All a service has to say comes in one write, once it serves.
        let mut buffer = [0; 4096];
        let count = child.stdout.as_mut().map_or(Ok(0), |output| output.read(&mut buffer)).expect("a pipe");
        let said = String::from_utf8_lossy(&buffer[..count]).into_owned();
        Self { name: name.to_owned(), child, said, errors }
    }

    /// What it says behind `name` at the beginning of a line.
    #[must_use]
    pub fn line(&self, name: &str) -> Option<&str> {
        self.said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim)
    }

    /// Where it says it serves `name` by `scheme`.
    ///
    /// # Panics
    /// Where it does not.
    #[must_use]
    pub fn address(&self, name: &str, scheme: &str) -> SocketAddr {
        let start = format!("{scheme}://");
        let mut lines =
            self.said.lines().filter_map(|line| line.strip_prefix(name)?.trim().strip_prefix(&*start));
        let address = lines.next().and_then(|rest| rest.split('/').next()?.parse().ok());
        address.unwrap_or_else(|| panic!("no {scheme} of {name:?} in {:?}: {}", self.said, self.complaints()))
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The number of its thread of this name, as the kernel has it, waited for.
    ///
    /// # Panics
    /// Where it does not come.
    #[must_use]
    pub fn thread(&self, name: &str) -> i32 {
        wait_for(&format!("a thread {name:?} of {}", self.name), || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).ok()?;
            let mut named = tasks.filter_map(Result::ok).filter(|task| {
                fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
            });
            named.next()?.file_name().to_str()?.parse().ok()
        })
    }

    /// What it has written to standard error.
    #[must_use]
    pub fn complaints(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Insists that it still runs.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn assert_runs(&mut self, after: &str) {
        let ended = self.child.try_wait().expect("a child");
        assert!(ended.is_none(), "{} ended after {after}: {ended:?} {}", self.name, self.complaints());
    }

    /// What came of a request; where nothing did, whether that is because the program has ended.
    ///
    /// # Panics
    /// Where nothing came.
    pub fn answered<T>(&mut self, to: &str, answer: std::io::Result<T>) -> T {
        answer.unwrap_or_else(|error| {
            // A process that was killed takes its time to be gone.
            std::thread::sleep(Duration::from_millis(500));
            self.assert_runs(to);
            panic!("{}: {error}, after {to}: {}", self.name, self.complaints());
        })
    }

    /// Its status once it has ended by itself.
    ///
    /// # Panics
    /// Where it does not.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the end of a process", || self.child.try_wait().expect("a child"))
    }

    /// Its resident memory at present and at most, in bytes.
    ///
    /// # Panics
    /// Where it has ended.
    #[must_use]
    pub fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let bytes = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size");
            line.trim().strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") * 1024
        };
        (bytes("VmRSS:"), bytes("VmHWM:"))
    }

    /// Its resident memory but for pages of files, in bytes.
    ///
    /// # Panics
    /// Where it has ended.
    #[must_use]
    pub fn anonymous(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a size");
        line.trim().strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") * 1024
    }

    /// How many sockets it has open.
    ///
    /// # Panics
    /// Where it has ended.
    #[must_use]
    pub fn sockets(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs");
        let is_socket =
            |path: PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        files.filter_map(Result::ok).filter(|file| is_socket(file.path())).count()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program of this workspace to its end.
///
/// # Panics
/// Where it cannot be run.
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

/// Lets this process have as many files as it may.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The answer to one request on a connection of its own.
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
