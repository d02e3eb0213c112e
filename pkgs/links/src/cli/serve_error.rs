//! Errors of the server.

use std::path::PathBuf;

use service::{access_log, handover, socket};

use crate::{geoip, store};

/// Why the server failed to start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the database.
    #[error("{path}: {source}")]
    Store {
        /// The database.
        path: PathBuf,
        /// The reason.
        source: store::Error,
    },
    /// An error of the hand-over from the process that served until now.
    #[error(transparent)]
    Handover(#[from] handover::Error),
    /// A migration would change the database while another process still serves from it.
    #[error(
        "{}: this version of the program would migrate the database, and one that serves is at it: stop that one first",
        .0.display()
    )]
    Migrates(PathBuf),
    /// An error of the admin listener's socket.
    #[error(transparent)]
    Socket(#[from] socket::Error),
    /// An error of the public listener.
    #[error(transparent)]
    Listener(#[from] listener::Error),
    /// An error of the access log or the audit log.
    #[error(transparent)]
    Log(#[from] access_log::OpenError),
    /// An error in the settings of the issuer's tokens.
    #[error(transparent)]
    Jwt(#[from] oidc::jwt::OpenError),
    /// A file that was named in the settings cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// An error of the file of countries.
    #[error("{path}: {source}")]
    GeoIp {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: geoip::Error,
    },
    /// A thread ended unexpectedly.
    #[error("{0} ended in a panic; the log says which")]
    Ended(&'static str),
    /// An error of signals, threads or the admin listener.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
