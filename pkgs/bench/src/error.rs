//! Why a bench gives up.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a bench gives up. A figure that misses its target isn't an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is missing and can't be installed from here.
    #[error("{program} is missing; install the package {package}")]
    Missing {
        /// The executable's name.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// A program couldn't be run at all.
    #[error("{program} could not be run")]
    Run {
        /// Its name.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed.
        output: String,
    },
    /// A server didn't answer in time.
    #[error("{server} did not answer within {waited:?}: {output}")]
    NotReady {
        /// Its name.
        server: String,
        /// How long it had.
        waited: Duration,
        /// What it printed.
        output: String,
    },
    /// A server's answer wasn't the one that the case is about.
    #[error("{server} answered {path} with {found} instead of {expected}")]
    Answer {
        /// Its name.
        server: String,
        /// The path asked for.
        path: String,
        /// The status expected.
        expected: u16,
        /// The status found.
        found: u16,
    },
    /// A load had errors, so its figures mean nothing.
    #[error("{server}, {case}: {what}")]
    Load {
        /// The server's name.
        server: String,
        /// The case's name.
        case: String,
        /// What went wrong.
        what: String,
    },
    /// A request of the harness itself failed.
    #[error("a request to {server} failed")]
    Request {
        /// The server's name.
        server: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file couldn't be read or written.
    #[error("{}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// No port, temporary file or process figure was available.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// For `map_err`: an [`Error::File`] about `path`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
