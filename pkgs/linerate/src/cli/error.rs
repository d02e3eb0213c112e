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
    /// An interface.
    #[error(transparent)]
    Nic(#[from] nic::Error),
    /// A plan that is not applied.
    #[error(transparent)]
    Apply(#[from] nic::apply::Error),
    /// What was there before is not put back.
    #[error(transparent)]
    Undo(#[from] nic::apply::UndoError),
    /// What was there before cannot be read.
    #[error(transparent)]
    Saved(#[from] nic::saved::Error),
    /// The policy that was applied is none of this version.
    #[error("the policy that was applied to {interface} is not known: {source}")]
    Policy {
        /// Of which interface.
        interface: String,
        /// Why.
        source: nic::policy::ParseError,
    },
    /// Rings that somebody else's channels took along are lost.
    #[error("{interface}: rings could not be set as they were before other channels: {source}")]
    Rings {
        /// Of which interface.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// What was verified is not as it should be; what differs was printed.
    #[error("{} not as planned: linerate nic apply mends {}", are(*.0, "setting"), if *.0 == 1 { "it" } else { "them" })]
    Drifted(usize),
    /// What was examined is not well; what was found was printed.
    #[error("{0} of what was found should not be so")]
    Unwell(usize),
    /// A file that is no profile.
    #[error("{}: {source}", path.display())]
    Profile {
        /// Which.
        path: PathBuf,
        /// Why.
        source: profile::ParseError,
    },
    /// The services, run together.
    #[error(transparent)]
    Up(#[from] up::Error),
    /// Versions of the image.
    #[error(transparent)]
    Update(#[from] update::Error),
    /// Many boxes.
    #[error(transparent)]
    Fleet(#[from] fleet::Error),
    /// The console.
    #[error(transparent)]
    Console(#[from] console::Error),
    /// Nothing was measured.
    #[error(transparent)]
    Measured(#[from] measured::Error),
    /// What was measured was faster before.
    #[error("{} slower than before, by more than rounds differ and is tolerated", are(*.0, "service"))]
    Slower(usize),
    /// Nothing was seen of what processes do.
    #[error(transparent)]
    Samples(#[from] samples::Error),
    /// A file that is none of folded stacks.
    #[error("{}: {source}", path.display())]
    Folded {
        /// Which.
        path: PathBuf,
        /// Why.
        source: ::console::flame::ParseError,
    },
    /// A recorded machine does nothing.
    #[error(
        "profile looks at the machine that it runs on, and not at one that was recorded: leave --machine out"
    )]
    Recorded,
    /// The helper listens on Unix sockets alone.
    #[error(
        "the console's helper is asked on a Unix socket alone, where the kernel says who asks: --listen unix:PATH or systemd:NAME"
    )]
    HelperAddress,
    /// The helper cannot go on.
    #[error("the console's helper: {0}")]
    Helper(#[source] io::Error),
    /// What writes files would be asked by anybody.
    #[error(
        "what writes files is asked on a Unix socket alone, where the kernel says who asks: --listen unix:PATH or systemd:NAME"
    )]
    WriterAddress,
    /// What writes files cannot go on.
    #[error(transparent)]
    Writer(#[from] writer::serve::ServeError),
    /// The helper cannot listen.
    #[error(transparent)]
    Socket(#[from] service::socket::Error),
    /// The CPUs.
    #[error("cannot read which CPUs there are: {0}")]
    Topology(#[source] io::Error),
    /// A file that cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The machine, or the one that was recorded.
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

/// All was looked at, and not all is as it should be.
pub const DRIFT: u8 = 3;

impl Error {
    /// The exit code: [`USAGE`] where other arguments would have helped, [`DRIFT`] where the machine is not as it
    /// should be, [`FAILURE`] otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Nic(error) | Self::Apply(nic::apply::Error::Nic(error)) if error.is_usage() => USAGE,
            Self::File { .. }
            | Self::Profile { .. }
            | Self::Folded { .. }
            | Self::Recorded
            | Self::WriterAddress
            | Self::Writer(writer::serve::ServeError::Root { .. })
            | Self::HelperAddress => USAGE,
            Self::Samples(error) if error.is_usage() => USAGE,
            Self::System(error) if error.is_usage() => USAGE,
            Self::Measured(measured::Error::Saved { .. }) => USAGE,
            Self::Update(error) if error.is_usage() => USAGE,
            Self::Console(error) if error.is_usage() => USAGE,
            Self::Fleet(error) if error.is_usage() => USAGE,
            Self::Fleet(error) if error.is_unhealthy() => DRIFT,
            Self::Drifted(_) | Self::Unwell(_) | Self::Slower(_) => DRIFT,
            _ => FAILURE,
        }
    }

    /// Prints the error in one line on stderr and answers with its exit code. A reader that has closed
    /// standard output has seen enough: that is no failure.
    pub fn report(&self) -> ExitCode {
        if matches!(self, Self::Output(Closed(error)) if error.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        eprintln!("error: {}{}", exit::chain(self), self.advice());
        ExitCode::from(self.exit_code())
    }

    /// What would have helped, where the error itself does not say.
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
