//! Why a command fails, and the exit code that says so.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use service::exit::{self, FAILURE, USAGE};
use service::output::Closed;

use crate::fleet;
use crate::measured;
use crate::nic;
use crate::profile;
use crate::samples;
use crate::system;
use crate::up;
use crate::update;
use crate::writer;

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An interface's queues can't be placed.
    #[error(transparent)]
    Nic(#[from] nic::Error),
    /// A plan that can't be applied.
    #[error(transparent)]
    Apply(#[from] nic::apply::Error),
    /// The original settings can't be restored.
    #[error(transparent)]
    Undo(#[from] nic::apply::UndoError),
    /// The original settings can't be read.
    #[error(transparent)]
    Saved(#[from] nic::saved::Error),
    /// This version doesn't know the policy that was applied.
    #[error("the policy that was applied to {interface} is not known: {source}")]
    Policy {
        /// The interface.
        interface: String,
        /// The reason.
        source: nic::policy::ParseError,
    },
    /// Rings that were reset with somebody else's channels can't be restored.
    #[error("{interface}: rings could not be set as they were before other channels: {source}")]
    Rings {
        /// The interface.
        interface: String,
        /// The reason.
        source: io::Error,
    },
    /// The verified settings aren't as planned; the differences were printed.
    #[error("{} not as planned: linerate nic apply mends {}", are(*.0, "setting"), if *.0 == 1 { "it" } else { "them" })]
    Drifted(usize),
    /// The check found faults; they were printed.
    #[error("{0} of what was found should not be so")]
    Unwell(usize),
    /// A file that isn't a profile.
    #[error("{}: {source}", path.display())]
    Profile {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: profile::ParseError,
    },
    /// The services can't run together.
    #[error(transparent)]
    Up(#[from] up::Error),
    /// There is no home directory for the services' data.
    #[error("neither XDG_STATE_HOME nor HOME is an absolute path: say where data is kept by --data")]
    NoData,
    /// Without a pause, checks would take a whole CPU.
    #[error("with --watch, --interval is the time between checks: at least 1")]
    NoPause,
    /// The image can't be updated.
    #[error(transparent)]
    Update(#[from] update::Error),
    /// A fleet command failed.
    #[error(transparent)]
    Fleet(#[from] fleet::Error),
    /// The console can't run.
    #[error(transparent)]
    Console(#[from] console::Error),
    /// Nothing was measured.
    #[error(transparent)]
    Measured(#[from] measured::Error),
    /// The earlier measurement was faster; the difference was printed.
    #[error("{} slower than before, by more than rounds differ and is tolerated", are(*.0, "service"))]
    Slower(usize),
    /// Nothing could be recorded.
    #[error(transparent)]
    Samples(#[from] samples::Error),
    /// A file that doesn't contain folded stacks.
    #[error("{}: {source}", path.display())]
    Folded {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: ::console::flame::ParseError,
    },
    /// A recorded machine runs nothing that this command could look at or change.
    #[error("{0} is about the machine that it runs on, and not one that was recorded: leave --machine out")]
    Recorded(&'static str),
    /// The helper only listens on Unix sockets.
    #[error(
        "the console's helper is asked on a Unix socket alone, where the kernel says who asks: --listen unix:PATH or systemd:NAME"
    )]
    HelperAddress,
    /// The helper can't continue.
    #[error("the console's helper: {0}")]
    Helper(#[source] io::Error),
    /// The files writer only listens on Unix sockets.
    #[error(
        "what writes files is asked on a Unix socket alone, where the kernel says who asks: --listen unix:PATH or systemd:NAME"
    )]
    WriterAddress,
    /// The files writer can't continue.
    #[error(transparent)]
    Writer(#[from] writer::serve::ServeError),
    /// The helper can't listen.
    #[error(transparent)]
    Socket(#[from] service::socket::Error),
    /// The CPUs can't be read.
    #[error("cannot read which CPUs there are: {0}")]
    Topology(#[source] io::Error),
    /// A file that can't be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The machine, or the recorded one, can't be opened.
    #[error(transparent)]
    System(#[from] system::OpenError),
    /// Standard output is closed or full.
    #[error(transparent)]
    Output(#[from] Closed),
}

/// `1 setting is`, `2 settings are`.
fn are(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what} is") } else { format!("{count} {what}s are") }
}

/// Exit code: everything was checked, and some of it isn't as it should be.
pub const DRIFT: u8 = 3;

impl Error {
    /// The exit code: [`USAGE`] if other arguments would have helped, [`DRIFT`] if the machine isn't as it should be,
    /// [`FAILURE`] otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Nic(error) | Self::Apply(nic::apply::Error::Nic(error)) if error.is_usage() => USAGE,
            Self::File { .. }
            | Self::Profile { .. }
            | Self::Folded { .. }
            | Self::Recorded(_)
            | Self::WriterAddress
            | Self::Writer(writer::serve::ServeError::Root { .. })
            | Self::HelperAddress => USAGE,
            Self::Samples(error) if error.is_usage() => USAGE,
            Self::System(error) if error.is_usage() => USAGE,
            Self::Measured(measured::Error::Saved { .. }) => USAGE,
            Self::Up(up::Error::Taken(_)) | Self::NoData | Self::NoPause => USAGE,
            Self::Update(error) if error.is_usage() => USAGE,
            Self::Console(error) if error.is_usage() => USAGE,
            Self::Fleet(error) if error.is_usage() => USAGE,
            Self::Fleet(error) if error.is_unhealthy() => DRIFT,
            Self::Drifted(_) | Self::Unwell(_) | Self::Slower(_) => DRIFT,
            _ => FAILURE,
        }
    }

    /// Prints the error in one line on stderr and returns its exit code. It is no failure if a reader, such as `head`,
    /// closes standard output early.
    pub fn report(&self) -> ExitCode {
        if matches!(self, Self::Output(Closed(error)) if error.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        eprintln!("error: {}{}", exit::chain(self), self.advice());
        ExitCode::from(self.exit_code())
    }

    /// Advice, if the error doesn't contain any.
    fn advice(&self) -> &'static str {
        let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let placing =
                matches!(self, Self::Apply(_) | Self::Undo(_) | Self::Saved(_) | Self::Rings { .. });
            if placing && error.downcast_ref().is_some_and(denied) && !rustix::process::geteuid().is_root() {
                return "; only root may place queues: sudo linerate nic";
            }
            cause = error.source();
        }
        ""
    }
}
