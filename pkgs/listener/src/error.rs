//! Why a listener cannot start, or has ended.

use std::io;

use service::socket;

use crate::tls;

/// Why a listener cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] socket::Error),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// A socket cannot be set up.
    #[error("cannot set up a socket: {0}")]
    Socket(#[source] io::Error),
    /// A thread or its runtime cannot be started.
    #[error("cannot start a worker: {0}")]
    Worker(#[source] io::Error),
    /// A worker ended unexpectedly. The reason is in the log.
    #[error("a worker ended by itself")]
    Ended,
}
