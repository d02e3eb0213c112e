//! A directory, and the real server on it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::Metrics;
pub use testkit::until;

use crate::client::{Answer, Client};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_linerate-files");

/// A directory with a root to serve and room beside it.
pub struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    /// A place with an empty root.
    pub fn new() -> Self {
        // Not in /tmp, which may be in memory: some tests need a disk.
        Self::below(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// A place whose files are in memory, on a file system that accepts any modification time.
    pub fn in_memory() -> Self {
        Self::below(Path::new("/dev/shm"))
    }

    fn below(path: &Path) -> Self {
        let directory = tempfile::tempdir_in(path).expect("a temporary directory");
        fs::create_dir(directory.path().join("root")).expect("a directory");
        Self { directory }
    }

    /// A path below the root.
    pub fn root(&self, path: &str) -> PathBuf {
        self.directory.path().join("root").join(path)
    }

    /// A path beside the root.
    pub fn beside(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// Writes a file below the root, and creates the directories above it.
    pub fn file(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Starts a server with two workers and these additional flags.
    pub fn serve(&self, flags: &[&str]) -> Server {
        self.serve_by(Command::new(BINARY), flags)
    }

    /// The same with a command that ends with the binary's name.
    pub fn serve_by(&self, command: Command, flags: &[&str]) -> Server {
        let process = testkit::Server::by(command)
            .args(["serve", "--listen", "127.0.0.1:0", "--root"])
            .arg(self.root(""))
            .args(if flags.contains(&"--workers") { &[][..] } else { &["--workers", "2"] })
            .args(flags)
            .start();
        let public = process.listens("files", "http");
        let (admin, secure) = (process.address("admin"), process.address_by("secure", "https"));
        Server { process, public, admin, secure }
    }
}

/// A running server; killed when dropped.
pub struct Server {
    process: testkit::Server,
    public: SocketAddr,
    pub admin: Option<SocketAddr>,
    pub secure: Option<SocketAddr>,
}

impl Deref for Server {
    type Target = testkit::Server;

    fn deref(&self) -> &testkit::Server {
        &self.process
    }
}

impl Server {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.public
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.public)
    }

    /// The answer to a GET on a new connection.
    pub fn get(&self, target: &str, fields: &str) -> Answer {
        self.connect().get(target, fields)
    }

    /// The value of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        Metrics::new(self.metrics()).value(name)
    }

    /// All metrics, as text.
    pub fn metrics(&self) -> String {
        Client::connect(self.admin.expect("an admin listener")).get("/metrics", "").text().to_owned()
    }

    /// Checks that it still answers.
    pub fn assert_alive(&self, path: &str) {
        assert_eq!(self.get(path, "").status, 200, "{}", self.log());
    }
}

/// Bytes that show their position in a file.
pub fn pattern(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // By eights: byte by byte, an unoptimised build takes a second for some of these files.
    for (number, part) in (0_u64..).zip(bytes.chunks_mut(8)) {
        let shown = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        part.copy_from_slice(&shown[..part.len()]);
    }
    bytes
}

/// Makes this the only crowd of `wanted` clients in this process, which may then have as many file descriptors, and so
/// may the servers it starts. None, with a message, if the system doesn't allow it.
pub fn crowd_of(test: &'static str, wanted: usize) -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    // The server keeps some descriptors free in addition.
    let needed = wanted as u64 + 5000;
    let raised = limit.maximum.map(|maximum| maximum.max(needed));
    if setrlimit(Resource::Nofile, Rlimit { current: raised, maximum: raised }).is_ok() {
        return Some(alone);
    }
    bench::skipped(test, &format!("{needed} file descriptors take a higher 'ulimit -Hn'"));
    None
}

/// How many bytes a server sends for a path, including the head, on a new connection; none of them is kept.
pub fn taken(address: SocketAddr, path: &str) -> u64 {
    let mut client = Client::connect(address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    std::io::copy(&mut client.stream, &mut std::io::sink()).expect("all of it")
}

/// Makes the kernel forget part of a file. It takes a while if pages are still on their way, to the disk or to the
/// lists from which they can be dropped.
pub fn forget(file: &File) {
    let all = 0..file.metadata().expect("a file").len();
    until("a file out of memory", || {
        file.sync_all().expect("written");
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).expect("advice is taken");
        !files::disk::resident::is_resident(file, &all)
    });
}

/// Makes a file look old enough to be kept in memory.
pub fn settle(path: &Path) {
    let file = File::options().write(true).open(path).expect("the file");
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).expect("a time");
}
