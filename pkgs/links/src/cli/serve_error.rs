//! Errors of the server.

use std::path::PathBuf;

use service::{access_log, handover, socket};

use crate::{geoip, store};

/// Why the server did not start or end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error("{path}: {source}")]
    Store {
        /// Which.
        path: PathBuf,
        /// Why.
        source: store::Error,
    },
    /// The process that served until now.
    #[error(transparent)]
    Handover(#[from] handover::Error),
    /// A migration would change the database under the process that serves until now.
    #[error(
        "{}: this version of the program would migrate the database, and one that serves is at it: stop that one first",
        .0.display()
    )]
    Migrates(PathBuf),
    /// The admin listener's socket.
    #[error(transparent)]
    Socket(#[from] socket::Error),
    /// The public listener.
    #[error(transparent)]
    Listener(#[from] listener::Error),
    /// The access log or the audit log.
    #[error(transparent)]
    Log(#[from] access_log::OpenError),
    /// The issuer's tokens.
    #[error(transparent)]
    Jwt(#[from] oidc::jwt::OpenError),
    /// A file that was named cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file of countries.
    #[error("{path}: {source}")]
    GeoIp {
        /// Which.
        path: PathBuf,
        /// Why.
        source: geoip::Error,
    },
    /// A thread ended unexpectedly.
    #[error("{0} ended in a panic; the log says which")]
    Ended(&'static str),
    /// Signals, threads or the admin listener.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
