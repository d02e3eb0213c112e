//! `reload`: makes a running server take over what has changed, for a service manager's reload (`ExecReload=`).
//!
//! If program, settings and unit are the same, the server gets a SIGHUP and reads the files again that it reads at a
//! SIGHUP. If any of the three differs, a new process is started to take over, and this command waits until it serves.
//! If none can take over, the running process is told to stop, provided that a service manager starts it again.
//!
//! The new process is a child of the service manager alone, since an intermediate process starts it and ends.

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

/// The command that serves; it has the same flags.
const SERVE: &str = "serve";

/// The variable that the service manager sets for a reload: the unit's main process.
const MAIN_PROCESS: &str = "MAINPID";

/// Set for the intermediate process that starts the new one.
const BETWEEN: &str = "LINERATE_RELOAD_BETWEEN";

/// Variables that are valid only for one process.
const OF_ONE: [&str; 6] =
    [MAIN_PROCESS, BETWEEN, "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The longest verdict, in bytes.
const MAX_BYTES: u64 = 1024;

/// Why a running server was not reloaded. It serves as before.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// `--handover` is not set.
    #[error("reload asks the process that serves at --handover, which is not set")]
    NoPlace,
    /// No process answers, and no service manager starts one.
    #[error("no process hands over at {0}")]
    Nobody(String),
    /// The difference requires a fresh start, and no service manager does that.
    #[error("{0}: stop the process that serves, and start it anew")]
    Anew(String),
    /// The serving process gives an invalid answer.
    #[error(transparent)]
    Handover(#[from] super::Error),
    /// The new process has ended, or did not start.
    #[error("the new process has ended before it served, and said why: the one before it serves on")]
    Ended,
    /// An error of the kernel.
    #[error("cannot reload: {0}")]
    Io(#[from] io::Error),
}

impl ReloadError {
    /// Whether other arguments could have avoided it.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoPlace)
    }
}

/// Arguments of `reload`.
#[derive(Clone, Debug, clap::Args)]
pub struct Reload {
    /// The arguments of `serve`, unchanged or new.
    #[arg(value_name = "FLAGS OF SERVE", trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

impl Reload {
    /// The command line of `serve` with these flags, starting with this program's name: for
    /// [`settings::parse_args`].
    pub fn command_line(&self) -> Vec<OsString> {
        let program = env::args_os().next().unwrap_or_default();
        [program, SERVE.into()].into_iter().chain(self.flags.iter().cloned()).collect()
    }

    /// Reloads the running server of this `program` that hands over at the path in `args`, so that its settings have
    /// this `fingerprint`. Prints the result as one line.
    ///
    /// # Errors
    /// When the server continues as before.
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
        // If nobody reads this line, the reload succeeded all the same.
        let _ = writeln!(io::stdout(), "{done}");
        Ok(())
    }

    /// Starts the server, and leaves it to the service manager.
    fn start_between(&self) -> io::Result<()> {
        // Fails if the service manager has already made this process a session leader.
        let _ = setsid();
        let mut server = Command::new(env::current_exe()?);
        server.args(self.command_line().into_iter().skip(1)).env_remove(BETWEEN).spawn().map(drop)
    }
}

/// Reloads. Returns the result as one line.
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

/// Starts a new process beside the one described by `about`, and waits for its verdict. The verdict is empty if it just
/// ended.
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
    // From here on, only the new process has its end of the stream.
    drop(between);
    let mut verdict = String::new();
    if status.success() {
        stream.take(MAX_BYTES).read_to_string(&mut verdict)?;
    }
    Ok(verdict)
}

/// Stops the main process so that the service manager, if there is one, starts the unit again.
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

/// Reads the settings for the server to be reloaded. Ends this process if they are invalid.
pub fn wanted<P: clap::Parser>(service: &str, reload: &Reload) -> (P, Fingerprint) {
    settings::parse_args(service, SERVE, reload.command_line())
}
