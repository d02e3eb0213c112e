//! Starts a program under test as a user would: it prints its addresses, handles signals, and ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::interruption::uninterrupted;

/// How often to check whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Long enough for a clean end on a machine that is busy with other tests.
const STOP_WITHIN: Duration = Duration::from_secs(120);

/// How much a program can print in a single atomic write (`PIPE_BUF`, pipe(7)).
const SAID_AT_MOST: usize = 4096;

/// The path of a program of this workspace. cargo puts it two directories above a test's own binary.
///
/// # Panics
/// When it hasn't been built.
#[must_use]
#[track_caller]
pub fn binary(name: impl AsRef<Path>) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let path = test.ancestors().nth(2).expect("tests are in target/PROFILE/deps").join(name);
    let what = "build it with 'cargo build --bins --examples', in the profile of this test";
    assert!(path.is_file(), "{} is not there: {what}", path.display());
    path
}

/// A program to start, with its arguments and environment.
#[derive(Debug)]
pub struct Launch {
    command: Command,
    log: Option<File>,
    lines: usize,
}

impl Launch {
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets its standard input, which is empty by default.
    #[must_use]
    pub fn stdin(mut self, input: impl Into<Stdio>) -> Self {
        self.command.stdin(input);
        self
    }

    /// Sets the file for its log instead of a private file. The file is also opened for reading.
    #[must_use]
    pub fn log(mut self, file: File) -> Self {
        self.log = Some(file);
        self
    }

    /// Sets how many lines it prints until it serves, for a program that doesn't print them in one write.
    #[must_use]
    pub fn lines(mut self, lines: usize) -> Self {
        self.lines = lines;
        self
    }

    /// Starts it and waits until it serves.
    ///
    /// # Panics
    /// When it ends instead. The message contains its log.
    #[track_caller]
    pub fn start(self) -> Server {
        let server = self.start_or_end();
        assert!(!server.said.is_empty(), "it did not start: {}", server.log());
        server
    }

    /// The same for a program that may end instead; then it has printed nothing.
    ///
    /// # Panics
    /// When it can't be run.
    #[track_caller]
    pub fn start_or_end(self) -> Server {
        let mut server = self.spawn();
        server.serves();
        server
    }

    /// Starts it without waiting.
    ///
    /// # Panics
    /// When it can't be run.
    #[track_caller]
    pub fn spawn(mut self) -> Server {
        let log = self.log.unwrap_or_else(|| tempfile::tempfile().expect("a temporary file"));
        self.command.stdout(Stdio::piped()).stderr(log.try_clone().expect("a descriptor"));
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        let output = child.stdout.take().expect("a pipe");
        let id = child.id();
        Server { child: Mutex::new(child), id, output, said: String::new(), lines: self.lines, log }
    }
}

/// A running program. It is killed when this is dropped; if the test is failing then, its log is printed.
#[derive(Debug)]
pub struct Server {
    child: Mutex<Child>,
    id: u32,
    /// Keeps the pipe open, so that the program can print more.
    output: ChildStdout,
    said: String,
    lines: usize,
    log: File,
}

impl Server {
    /// Launches this program.
    pub fn program(path: impl AsRef<OsStr>) -> Launch {
        Self::by(Command::new(path))
    }

    /// Launches a command, which starts with the program's name.
    #[must_use]
    pub fn by(mut command: Command) -> Launch {
        command.stdin(Stdio::null());
        Launch { command, log: None, lines: 1 }
    }

    /// Waits until it prints its addresses on standard output, which a service does in one write. Returns false if it
    /// ends instead.
    pub fn serves(&mut self) -> bool {
        let mut said = self.said.as_bytes().to_vec();
        let mut buffer = [0; SAID_AT_MOST];
        let is_all = |said: &[u8], lines| {
            said.ends_with(b"\n") && said.iter().filter(|&&byte| byte == b'\n').count() >= lines
        };
        while !is_all(&said, self.lines) {
            match uninterrupted(|| self.output.read(&mut buffer)).expect("its output is read") {
                0 => break,
                count => said.extend_from_slice(&buffer[..count]),
            }
        }
        self.said = String::from_utf8(said).expect("text");
        !self.said.is_empty()
    }

    /// What it had printed when it started to serve.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The rest of the line that starts with this word.
    #[must_use]
    pub fn line(&self, name: &str) -> Option<&str> {
        self.said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim)
    }

    /// The printed address of `name`, with any scheme.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<SocketAddr> {
        ["http", "https"].iter().find_map(|scheme| self.address_by(name, scheme))
    }

    /// The printed address of `name` with `scheme`.
    #[must_use]
    pub fn address_by(&self, name: &str, scheme: &str) -> Option<SocketAddr> {
        self.said.lines().find_map(|line| {
            let url = line.strip_prefix(name)?.strip_prefix(' ')?.trim();
            url.strip_prefix(scheme)?.strip_prefix("://")?.split('/').next()?.parse().ok()
        })
    }

    /// The same for an address that must exist.
    ///
    /// # Panics
    /// When there is none. The message contains what was printed.
    #[must_use]
    #[track_caller]
    pub fn listens(&self, name: &str, scheme: &str) -> SocketAddr {
        let address = self.address_by(name, scheme);
        address.unwrap_or_else(|| panic!("no {scheme} of {name:?} in {:?}: {}", self.said, self.log()))
    }

    /// What it has logged on standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        // Read by offset: the position of the descriptor is where the program writes.
        while let Ok(count @ 1..) = self.log.read_at(&mut buffer, all.len() as u64) {
            all.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Its process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends it a signal. Does nothing if it has already ended.
    pub fn signal(&self, signal: Signal) {
        let mut child = self.child();
        // No other process gets this ID until the program has been waited for.
        if child.try_wait().expect("a child").is_none() {
            kill_process(Pid::from_child(&child), signal).expect("a process of ours");
        }
    }

    /// Its exit status, if it has ended.
    pub fn has_ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().expect("a child")
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    #[track_caller]
    pub fn wait(&self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.has_ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "it still runs after {limit:?}: {}", self.log());
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Tells it to stop, and waits until it has ended cleanly.
    ///
    /// # Panics
    /// When it doesn't.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::TERM);
        let status = self.wait(STOP_WITHIN);
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// Kills it with SIGKILL, as in a crash, and waits until it is gone.
    pub fn kill(&self) {
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its resident memory, in bytes.
    #[must_use]
    #[track_caller]
    pub fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Its peak resident memory, in bytes.
    #[must_use]
    #[track_caller]
    pub fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Its resident memory without file pages, in bytes: exactly, while the kernel's own figure may lack what each CPU
    /// has not yet reported (Documentation/filesystems/proc.rst).
    #[must_use]
    #[track_caller]
    pub fn anonymous(&self) -> u64 {
        self.size("smaps_rollup", "Anonymous:")
    }

    /// A size in `/proc/PID/status` (proc_pid_status(5)).
    #[track_caller]
    fn memory(&self, name: &str) -> u64 {
        self.size("status", name)
    }

    /// A size in a file of `/proc/PID`.
    #[track_caller]
    fn size(&self, file: &str, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/{file}", self.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size: it runs");
        line.trim().strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("what {} logged:\n{}", self.id(), self.log());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::until;

    fn shell(script: &str) -> Launch {
        Server::program("sh").args(["-c", script])
    }

    #[test]
    fn a_server_says_where_it_is_logs_and_ends_when_told_to() {
        let script = "trap 'exit 0' TERM; echo \"$MESSAGE\" >&2
                      printf 'web   http://127.0.0.1:80/\\nweb x\\nweb https://127.0.0.1:443/\\nadmin x\\n'
                      while :; do sleep 0.01; done";
        let server = shell(script).env("MESSAGE", "hello").start();
        assert_eq!((server.line("admin"), server.line("adm"), server.line("none")), (Some("x"), None, None));
        assert_eq!(server.address("web"), Some(([127, 0, 0, 1], 80).into()));
        assert_eq!(server.listens("web", "https").port(), 443);
        assert_eq!(server.address("admin"), None);
        assert_eq!(server.log(), "hello\n");
        // Each size is of another moment, and a shell that starts programs has more memory in some than in others.
        until("sizes that fit", || {
            let (anonymous, resident, peak) = (server.anonymous(), server.resident(), server.peak());
            0 < anonymous && anonymous <= resident && resident <= peak
        });
        server.stop();
    }

    #[test]
    fn one_that_says_its_lines_one_by_one_is_waited_for() {
        let server = shell("echo one; echo two; exec sleep 60").lines(2).start();
        assert_eq!(server.said(), "one\ntwo\n");
    }

    #[test]
    fn one_that_ends_says_nothing() {
        let server = shell("echo no licence >&2; exit 3").start_or_end();
        assert_eq!(server.wait(STOP_WITHIN).code(), Some(3));
        assert_eq!((server.said(), &*server.log()), ("", "no licence\n"));
    }

    #[test]
    #[should_panic(expected = "it did not start: no licence")]
    fn one_that_has_to_start_and_ends_is_reported_with_what_it_logged() {
        shell("echo no licence >&2; exit 3").start();
    }

    #[test]
    fn one_that_is_dropped_or_killed_is_gone() {
        let killed = shell("echo; exec sleep 60").start();
        killed.kill();
        assert!(killed.has_ended().is_some_and(|status| !status.success()));
        let dropped = shell("echo; exec sleep 60").spawn();
        let process = PathBuf::from(format!("/proc/{}", dropped.id()));
        assert!(process.exists());
        drop(dropped);
        assert!(!process.exists());
    }
}
