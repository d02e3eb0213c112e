//! `reload`: has a server that runs take over what has changed, as what a service manager runs at a reload (`ExecReload=`).
//!
//! Where its program, settings and unit are still the same, it reads again by SIGHUP what it reads then. Where any differs,
//! another process is started that takes over, and is waited for until it serves. Where none can take over, the one that
//! runs is told to stop, if a service manager starts it anew.
//!
//! The new process is nobody's child but the service manager's: what starts it starts it by a process that ends.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, setsid};

use super::about::{About, Difference};
use super::{HandoverArgs, starter, wire};
use crate::settings::{self, Fingerprint};

/// The command that serves, and has the same flags.
const SERVE: &str = "serve";

/// Set by the service manager for what it runs at a reload: the unit's main process.
const MAIN_PROCESS: &str = "MAINPID";

/// Set for the process by which the new one is started.
const BETWEEN: &str = "LINERATE_RELOAD_BETWEEN";

/// What is about one process alone.
const OF_ONE: [&str; 6] =
    [MAIN_PROCESS, BETWEEN, "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The longest verdict.
const MAX_BYTES: u64 = 1024;

/// Why a server that runs was not reloaded. It serves as before.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// There is no place to ask.
    #[error("reload asks the process that serves at --handover, which is not set")]
    NoPlace,
    /// Nobody is there who could be reloaded, and nobody starts one.
    #[error("no process hands over at {0}")]
    Nobody(String),
    /// What differs needs a start anew, and nobody starts it.
    #[error("{0}: stop the process that serves, and start it anew")]
    Anew(String),
    /// The process that serves does not say what it should.
    #[error(transparent)]
    Handover(#[from] super::Error),
    /// The new process has ended, or was not even started.
    #[error("the new process has ended before it served, and said why: the one before it serves on")]
    Ended,
    /// The kernel's.
    #[error("cannot reload: {0}")]
    Io(#[from] io::Error),
}

impl ReloadError {
    /// Whether other arguments would have helped.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoPlace)
    }
}

/// Arguments of `reload`.
#[derive(Clone, Debug, clap::Args)]
pub struct Reload {
    /// What the server is started with behind `serve`: the same, or what is new.
    #[arg(value_name = "FLAGS OF SERVE", trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

impl Reload {
    /// The command line that serves, as this process, the program's name first: for
    /// [`settings::parse_args`](crate::settings::parse_args).
    pub fn command_line(&self) -> Vec<OsString> {
        let program = env::args_os().next().unwrap_or_default();
        [program, SERVE.into()].into_iter().chain(self.flags.iter().cloned()).collect()
    }

    /// Reloads the server of this `program` that runs and hands over at the place of these `args`, so that it is set as this
    /// `fingerprint` sums up; says in a line what has become of it.
    ///
    /// # Errors
    /// When it serves as before.
    pub fn run(
        &self,
        program: &str,
        args: &HandoverArgs,
        fingerprint: Fingerprint,
    ) -> Result<(), ReloadError> {
        let path = args.handover.as_deref().ok_or(ReloadError::NoPlace)?;
        if env::var_os(BETWEEN).is_some() {
            return Ok(self.start_between()?);
        }
        let done = reload(program, path, fingerprint)?;
        // Where nobody listens, it is done all the same.
        let _ = writeln!(io::stdout(), "{done}");
        Ok(())
    }

    /// Starts the server, and leaves it to the service manager.
    fn start_between(&self) -> io::Result<()> {
        // Fails where the service manager has seen to it.
        let _ = setsid();
        let mut server = Command::new(env::current_exe()?);
        server.args(self.command_line().into_iter().skip(1)).env_remove(BETWEEN).spawn().map(drop)
    }
}

/// What has become of it, in a line.
fn reload(program: &str, path: &Path, fingerprint: Fingerprint) -> Result<String, ReloadError> {
    let wanted = About::of_process(Some(fingerprint))?;
    let Some((peer, texts)) = wire::ask(path, wire::ABOUT, program)? else {
        return anew(None, &format!("nobody hands over at {}", path.display()), path);
    };
    let old = wire::process(&peer);
    let about = About::told(texts.into_iter().map(|item| item.name));
    match about.differs_from(&wanted) {
        Difference::None => {
            let old = old.ok_or_else(|| ReloadError::Nobody(path.display().to_string()))?;
            kill_process(old, Signal::HUP).map_err(io::Error::from)?;
            Ok("the same program with the same settings: it reads again what it reads at SIGHUP".to_owned())
        }
        Difference::Credentials => anew(old, "other credentials", path),
        Difference::Of(what) => match start(&about)?.as_str() {
            starter::SERVING => Ok(format!("{what}: a new process serves")),
            verdict => match verdict.strip_prefix(starter::ANEW) {
                Some(reason) => anew(old, reason, path),
                None => Err(ReloadError::Ended),
            },
        },
    }
}

/// Starts a new process beside the one that is so, and waits for its verdict; an empty one where it just ended.
fn start(about: &About) -> io::Result<String> {
    let (stream, theirs) = UnixStream::pair()?;
    let mut between = Command::new(env::current_exe()?);
    OF_ONE.iter().for_each(|name| {
        between.env_remove(name);
    });
    for (name, value) in about.manager() {
        match value {
            Some(value) => between.env(name, value),
            None => between.env_remove(name),
        };
    }
    between.args(env::args_os().skip(1)).env(BETWEEN, "1").env(starter::ASKED_FOR, "1");
    let status = between.stdin(Stdio::from(OwnedFd::from(theirs))).status()?;
    // Its end of the stream is the new process' alone from here on.
    drop(between);
    let mut verdict = String::new();
    if status.success() {
        stream.take(MAX_BYTES).read_to_string(&mut verdict)?;
    }
    Ok(verdict)
}

/// Has the service manager start the unit anew, where there is one: the main process is told to stop.
fn anew(old: Option<Pid>, reason: &str, path: &Path) -> Result<String, ReloadError> {
    let main = env::var(MAIN_PROCESS).ok().and_then(|main| Pid::from_raw(main.parse().ok()?));
    let Some(main) = main else {
        return Err(match old {
            Some(_) => ReloadError::Anew(reason.to_owned()),
            None => ReloadError::Nobody(path.display().to_string()),
        });
    };
    kill_process(main, Signal::TERM).map_err(io::Error::from)?;
    Ok(format!("{reason}: the process that serves stops, and the service manager starts it anew"))
}

/// Reads the settings of who is to serve; ends this process where they will not do.
pub fn wanted<P: clap::Parser>(service: &str, reload: &Reload) -> (P, Fingerprint) {
    settings::parse_args(service, SERVE, reload.command_line())
}
