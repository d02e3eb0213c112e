//! Errors of serving a stage.

use std::io;
use std::net::SocketAddr;

/// Why a stage isn't served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It couldn't listen, or couldn't continue.
    #[error("cannot serve on {address}")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// Its threads couldn't be started.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
    /// PostgreSQL isn't there, or isn't as the stage needs it.
    #[error("PostgreSQL")]
    Postgres(#[from] sqlx::Error),
    /// SQLite's file couldn't be created or read.
    #[error("SQLite")]
    Sqlite(#[from] rusqlite::Error),
    /// SQLite's connections couldn't be opened.
    #[error("SQLite")]
    Pool(#[from] r2d2::Error),
}

impl Error {
    /// For `map_err`: an [`Error::Serve`] on `address`.
    pub(crate) fn serve(address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Serve { address, source }
    }
}
