//! Runs all services together to try them out: with embedded storage, on free ports. They start and stop together.
//!
//! Services don't hand over to successors here (`--handover`). When one service ends, all of them are stopped, and none
//! is restarted. A second `up` runs another set of services on other ports, with data of its own; it doesn't take over
//! from the first. Use systemd units to restart without losing connections.
//!
//! However this process ends, its services end too: it stops them when its terminal is closed, and the kernel does when
//! it is killed. The data stays locked until the last of them has ended.
//!
//! - [`program`]: where the services' binaries are.
//! - [`port`]: the ports they can use.
//! - [`child`]: a running service, and its output.

pub mod child;
pub mod port;
pub mod program;

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use serde::Serialize;
use service::shutdown::Shutdown;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use child::{Child, LogLine, ReadyAt};
use port::{Ports, ReassignedPort};

/// How long services may take to become ready; the first start creates their databases.
const READY: Duration = Duration::from_secs(30);

/// The code and target of the link that exists from the start.
const EXAMPLE: (&str, &str) = ("hello", "https://example.com/");

/// The name of the files writer in the output.
const WRITER: &str = "writer";

/// The longest path of a Unix socket, in bytes (unix(7)).
const MOST_SOCKET: usize = 107;

/// The file that is served if there is none yet.
const PAGE: &str = "<!doctype html>\n<title>linerate</title>\n<h1>It works</h1>\n";

/// Why the services can't run together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A binary can't be found.
    #[error("{0} is neither beside linerate nor on PATH: cargo build --release builds it")]
    Program(&'static str),
    /// A program can't be started.
    #[error("{program}: {source}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A program that prepares something failed.
    #[error("{program} {what}: {said}")]
    Prepare {
        /// The program.
        program: PathBuf,
        /// What it should do.
        what: &'static str,
        /// What it said.
        said: String,
    },
    /// A service ended by itself.
    #[error("{name} ended: {status}")]
    Ended {
        /// The service.
        name: &'static str,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
    /// A service isn't ready in time.
    #[error("{name} is not ready after {} s", READY.as_secs())]
    NotReady {
        /// The service.
        name: &'static str,
    },
    /// A file or directory can't be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The data is in use.
    #[error("another linerate up uses {}: choose another by --data", .0.display())]
    Taken(PathBuf),
    /// Ports, signals or the runtime failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// What is running, and how to reach it.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// Where short links are served.
    pub links: SocketAddr,
    /// Where links are created.
    pub links_admin: SocketAddr,
    /// Where files are served.
    pub files: SocketAddr,
    /// Where users are served.
    pub api: SocketAddr,
    /// Where the console is.
    pub console: SocketAddr,
    /// Ports that replace usual ones that are taken.
    pub moved: Vec<ReassignedPort>,
    /// Where the programs are.
    pub programs: PathBuf,
    /// Where databases and files are.
    pub data: PathBuf,
    /// The token for creating links.
    pub token: String,
    /// The services' processes, by name.
    pub processes: BTreeMap<&'static str, u32>,
    /// Commands to try.
    pub commands: Vec<String>,
}

/// How often services are started on other ports, if somebody takes the chosen ports just before they listen.
const ATTEMPTS: usize = 3;

/// Starts the services, and stops them all when one ends or this process gets a termination signal. Calls `ready` once
/// all of them are ready, and `said` with each line of their output.
pub fn run(
    data: &Path,
    mut ready: impl FnMut(&Running) -> io::Result<()>,
    said: impl Fn(&LogLine) + Clone + 'static,
) -> Result<(), Error> {
    let shutdown = Shutdown::on_signals()?;
    let services = Services::find(data)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        if !ignores_hangup(&fs::read_to_string("/proc/self/status").unwrap_or_default()) {
            let (mut hangup, shutdown) = (signal(SignalKind::hangup())?, shutdown.clone());
            tokio::task::spawn_local(async move {
                hangup.recv().await;
                shutdown.trigger();
            });
        }
        for attempt in 1.. {
            let ports = if attempt == 1 { Ports::usual()? } else { Ports::any()? };
            let mut greeted = false;
            let (mut children, mut token) = services.start(&ports, said.clone())?;
            let outcome = tokio::select! {
                outcome = together(&mut children, async |children: &mut Vec<Child>| {
                    let token = token.recv().await.unwrap_or_default();
                    let mut console = services.console(&ports, &token, said.clone())?;
                    console.ready(READY).await?;
                    children.push(console);
                    greeted = true;
                    Ok(ready(&services.running(&ports, token, children))?)
                }) => outcome,
                () = shutdown.wait() => Ok(()),
            };
            for child in &children {
                child.terminate();
            }
            for child in &mut children {
                child.end().await;
            }
            match outcome {
                Err(Error::Ended { .. }) if !greeted && attempt < ATTEMPTS => {}
                outcome => return outcome,
            }
        }
        Ok(())
    })
}

/// Whether a closed terminal should end nothing, as nohup(1) says by ignoring SIGHUP. `status` is that of the process,
/// as in proc_pid_status(5).
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, the lowest bit.
    mask.is_some_and(|mask| mask & 1 != 0)
}

/// The services' programs, and the directory of their data.
struct Services {
    links: PathBuf,
    files: PathBuf,
    api: PathBuf,
    data: PathBuf,
    /// A second set of services would replace the token of the first.
    _lock: File,
}

impl Services {
    /// Finds the programs, and creates what they need.
    fn find(data: &Path) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let [links, files, api] = ["linerate-links", "linerate-files", "linerate-api"].map(program::find);
        let (links, files, api) = (links?, files?, api?);
        fs::create_dir_all(data).map_err(failed(data))?;
        let services = Self { links, files, api, data: data.to_owned(), _lock: lock(data)? };
        let root = services.root();
        fs::create_dir_all(&root).map_err(failed(&root))?;
        let page = root.join("index.html");
        if !page.exists() {
            fs::write(&page, PAGE).map_err(failed(&page))?;
        }
        prepare(&services.links, &services.database())?;
        Ok(services)
    }

    fn database(&self) -> PathBuf {
        self.data.join("links.db")
    }

    fn root(&self) -> PathBuf {
        self.data.join("www")
    }

    /// The path of a service's audit log.
    fn audit(&self, service: &str) -> PathBuf {
        self.data.join(format!("{service}-audit.log"))
    }

    /// The writer's socket: next to the data or, if that path is too long for a socket, in a directory where everybody
    /// may create files.
    fn writer_socket(&self) -> PathBuf {
        let beside = self.data.join("files-writer.socket");
        let absolute = std::path::absolute(&beside).unwrap_or(beside);
        if absolute.as_os_str().len() <= MOST_SOCKET {
            return absolute;
        }
        env::temp_dir().join(format!("linerate-up-{}.socket", std::process::id()))
    }

    /// Starts the services except the console. The receiver gets the token that links prints.
    fn start(
        &self,
        ports: &Ports,
        said: impl Fn(&LogLine) + Clone + 'static,
    ) -> Result<(Vec<Child>, mpsc::Receiver<String>), Error> {
        let serve = |program: &Path, (public, admin): (SocketAddr, SocketAddr)| {
            let mut command = Command::new(program);
            command.args(["serve", "--listen", &public.to_string(), "--admin", &admin.to_string()]);
            command
        };
        let mut command = serve(&self.links, ports.links);
        command.arg("--print-token").arg("--database").arg(self.database());
        command.args(["--public-url", &public_url(ports)]).arg("--audit-log").arg(self.audit("links"));
        let mut links = Child::start("links", command, ReadyAt::Admin(ports.links.1), said.clone())?;
        let token = links.token();
        let mut command = serve(&self.files, ports.files);
        command.arg("--root").arg(self.root()).arg("--admin-browse");
        let files = Child::start("files", command, ReadyAt::Admin(ports.files.1), said.clone())?;
        let mut command = serve(&self.api, ports.api);
        command.arg("--database-url").arg(format!("sqlite:{}", self.data.join("api.db").display()));
        command.arg("--audit-log").arg(self.audit("api"));
        let api = Child::start("api", command, ReadyAt::Admin(ports.api.1), said.clone())?;
        let writer = self.writer(said)?;
        Ok((vec![links, files, api, writer], token))
    }

    /// Starts the writer for files' root. Only the console uses it, which runs as the same user.
    fn writer(&self, said: impl Fn(&LogLine) + Clone + 'static) -> Result<Child, Error> {
        let socket = self.writer_socket();
        let mut command = Command::new(env::current_exe()?);
        command.arg("files-writer").arg("--root").arg(self.root());
        command.args([
            "--listen",
            &unix(&socket),
            "--user",
            &rustix::process::geteuid().as_raw().to_string(),
        ]);
        Child::start(WRITER, command, ReadyAt::Unix(socket, "/uploads"), said)
    }

    /// Starts the console. Everybody on this machine may use it with the token's rights. The token is only in the
    /// console's environment, never on a disk.
    fn console(
        &self,
        ports: &Ports,
        token: &str,
        said: impl Fn(&LogLine) + Clone + 'static,
    ) -> Result<Child, Error> {
        let mut command = Command::new(env::current_exe()?);
        let (public, admin) = ports.console;
        command.args(["console", "--listen", &public.to_string(), "--admin", &admin.to_string()]);
        // The console runs as this user, and may do what this user may.
        command.args(["--helper", "self"]);
        for (service, (_, admin)) in [("links", ports.links), ("files", ports.files), ("api", ports.api)] {
            command.arg(format!("--{service}")).arg(admin.to_string());
        }
        command.arg("--users").arg(ports.api.0.to_string());
        command.args(["--files-writer", &unix(&self.writer_socket())]);
        for (flag, service) in
            [("--links-audit", "links"), ("--api-audit", "api"), ("--audit-log", "console")]
        {
            command.arg(flag).arg(self.audit(service));
        }
        command.env("LINERATE_CONSOLE_TOKEN", token);
        Child::start("console", command, ReadyAt::Admin(admin), said)
    }

    /// Commands that work unchanged. Each ends with a URL, or with a word that can be followed by more.
    fn commands(&self, ports: &Ports, token: &str) -> Vec<String> {
        let (code, target) = EXAMPLE;
        let Ports { links: (links, admin), files: (files, _), api: (api, _), .. } = ports;
        vec![
            format!("curl -i http://{links}/{code}"),
            format!(
                "curl -i -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' -d \
                 '{{\"target\": \"{target}\"}}' http://{admin}/api/v1/links"
            ),
            format!("curl -i http://{files}/"),
            format!("curl -i http://{api}/v1/users"),
            format!(
                "{} add {target} --database {} --public-url {}",
                quoted(&self.links.display().to_string()),
                quoted(&self.database().display().to_string()),
                public_url(ports)
            ),
        ]
    }

    /// How to reach them.
    fn running(&self, ports: &Ports, token: String, children: &[Child]) -> Running {
        let commands = self.commands(ports, &token);
        Running {
            links: ports.links.0,
            links_admin: ports.links.1,
            files: ports.files.0,
            api: ports.api.0,
            console: ports.console.0,
            moved: ports.moved.clone(),
            programs: self.links.parent().unwrap_or(Path::new("/")).to_owned(),
            data: self.data.clone(),
            token,
            processes: children.iter().filter_map(Child::process).collect(),
            commands,
        }
    }
}

/// Locks the data as long as the file is open, here or in a service: each inherits it, and may end after this process.
fn lock(data: &Path) -> Result<File, Error> {
    let path = data.join(".lock");
    let failed = |source| Error::File { path: path.clone(), source };
    let file = open_lock(&path).map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(Error::Taken(data.to_owned())),
        locked => locked.map_err(|errno| failed(errno.into()))?,
    }
    // Without close-on-exec.
    fcntl_setfd(&file, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
    Ok(file)
}

/// Opens the file that is locked. A link isn't followed, and nothing is truncated.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Creates the database and the link that exists from the start.
fn prepare(links: &Path, database: &Path) -> Result<(), Error> {
    let (code, target) = EXAMPLE;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(links);
        command.args(arguments).arg("--database").arg(database).stdin(Stdio::null());
        command.output().map_err(|source| Error::Start { program: links.to_owned(), source })
    };
    // The link exists from an earlier run, or is added.
    if database.exists() && run(&["get", code])?.status.success() {
        return Ok(());
    }
    let added = run(&["add", target, "--code", code])?;
    if added.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&added.stderr).trim().to_owned();
    Err(Error::Prepare { program: links.to_owned(), what: "add", said })
}

/// Waits until all services are ready, and calls `ready`, which may start more. Then waits until the first one ends.
async fn together(
    children: &mut Vec<Child>,
    ready: impl AsyncFnOnce(&mut Vec<Child>) -> Result<(), Error>,
) -> Result<(), Error> {
    for child in children.iter_mut() {
        child.ready(READY).await?;
    }
    ready(children).await?;
    let ends = children.iter_mut().map(|child| Box::pin(child.ended()));
    let mut ends: Vec<_> = ends.collect();
    let first = std::future::poll_fn(|context| {
        for end in &mut ends {
            if let std::task::Poll::Ready(error) = end.as_mut().poll(context) {
                return std::task::Poll::Ready(error);
            }
        }
        std::task::Poll::Pending
    });
    Err(first.await)
}

/// The URL that short links start with.
fn public_url(ports: &Ports) -> String {
    format!("http://{}", ports.links.0)
}

/// The path of a Unix socket in the notation of addresses.
fn unix(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

/// Quotes a text as a single shell word.
fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_part_them() {
        for (text, word) in
            [("/a/b-c.db", "/a/b-c.db"), ("/a b", "'/a b'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(text), word);
        }
    }

    #[test]
    fn a_lock_is_no_link_and_keeps_its_text() {
        let directory = tempfile::tempdir().expect("a directory");
        let [link, text] = ["link", "text"].map(|name| directory.path().join(name));
        fs::write(&text, "text").expect("written");
        std::os::unix::fs::symlink(&text, &link).expect("a link");
        assert!(open_lock(&link).is_err() && open_lock(&text).is_ok());
        assert_eq!(fs::read_to_string(&text).expect("a file"), "text");
        assert!(open_lock(&directory.path().join("new")).is_ok());
    }

    #[test]
    fn the_data_is_locked_until_the_last_service_has_ended() {
        let data = tempfile::tempdir().expect("a directory");
        let held = lock(data.path()).expect("nobody uses it");
        let mut service = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        drop(held);
        assert!(matches!(lock(data.path()), Err(Error::Taken(_))));
        drop(service.stdin.take());
        service.wait().expect("a child");
        // What other tests have started meanwhile inherited it too.
        testkit::until("nobody uses the data", || lock(data.path()).is_ok());
    }

    #[test]
    fn nohup_is_noticed() {
        let status =
            |ignored| format!("SigBlk:\t0000000000000001\nSigIgn:\t{ignored}\nSigCgt:\t0000000000000001\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")) && !ignores_hangup(""));
    }
}
