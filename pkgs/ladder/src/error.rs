//! Why a stage does not serve.

use std::io;
use std::net::SocketAddr;

/// Why a stage does not serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not listen, or could not go on.
    #[error("cannot serve on {address}")]
    Serve {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// Its threads could not be started.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
    /// PostgreSQL is not there, or not as the stage needs it.
    #[error("PostgreSQL")]
    Postgres(#[from] sqlx::Error),
    /// SQLite's file could not be made or read.
    #[error("SQLite")]
    Sqlite(#[from] rusqlite::Error),
    /// SQLite's connections could not be opened.
    #[error("SQLite")]
    Pool(#[from] r2d2::Error),
}

impl Error {
    /// For `map_err`: an [`Error::Serve`] on `address`.
    pub(crate) fn serve(address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Serve { address, source }
    }
}
