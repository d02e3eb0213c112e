//! Many boxes: which wave each is in and how it does, how far refs have come, and whether a box takes its part of the service
//! address.
//!
//! - [`settings`]: nodes and waves, as a file has them.
//! - [`ask`]: HTTP, bounded.
//! - [`node`]: what one node reports.
//! - [`health`]: whether that is healthy.
//! - [`refs`]: how far each wave is, in a bare git repository.
//! - [`promote`]: a wave's ref moved, once the wave before was well for long enough.
//! - [`bird`]: BIRD's control socket.
//! - [`announce`]: the service address taken while the box is ready, and given up to drain.

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

/// Why something of the fleet is not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file of nodes and waves.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The repository.
    #[error(transparent)]
    Refs(#[from] refs::Error),
    /// A promotion that is not done.
    #[error(transparent)]
    Promote(#[from] promote::Error),
    /// Authorities that are none.
    #[error(transparent)]
    Trust(#[from] ask::TrustError),
    /// A file that cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
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

    /// Whether all was looked at, and not all is as it should be.
    pub fn is_unhealthy(&self) -> bool {
        matches!(self, Self::Promote(promote::Error::Unhealthy { .. } | promote::Error::Halted(_)))
    }
}
