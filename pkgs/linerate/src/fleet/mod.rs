//! A fleet of machines: which wave each machine is in and whether it is healthy, which commit each wave has reached,
//! and whether a machine takes its share of the service address.
//!
//! - [`settings`]: nodes and waves from a file.
//! - [`ask`]: an HTTP client with limits.
//! - [`node`]: what one node reports.
//! - [`health`]: whether it is healthy.
//! - [`refs`]: which commit each wave has reached, in a bare git repository.
//! - [`promote`]: moves a wave's ref once the previous wave has been healthy long enough.
//! - [`bird`]: BIRD's control socket.
//! - [`announce`]: takes the service address while the machine is ready, and gives it up to drain.

pub mod announce;
pub mod ask;
pub mod bird;
pub mod health;
pub mod node;
pub mod promote;
pub mod refs;
pub mod settings;

use std::io;
use std::path::PathBuf;

/// Why a fleet command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file with nodes and waves.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The repository.
    #[error(transparent)]
    Refs(#[from] refs::Error),
    /// A promotion that wasn't made.
    #[error(transparent)]
    Promote(#[from] promote::Error),
    /// Invalid authorities.
    #[error(transparent)]
    Trust(#[from] ask::TrustError),
    /// A file that can't be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The listener for health checks.
    #[error(transparent)]
    Listener(#[from] listener::Error),
    /// Signals or threads.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// Whether other arguments or another file would have helped.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Settings(_) | Self::Trust(_) => true,
            Self::Promote(error) => error.is_usage(),
            _ => false,
        }
    }

    /// Whether everything was checked and something is unhealthy.
    pub fn is_unhealthy(&self) -> bool {
        matches!(self, Self::Promote(promote::Error::Unhealthy { .. } | promote::Error::Halted(_)))
    }
}
