//! Why a bench gives up.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a bench gives up. A figure that misses its target is no error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is missing and cannot be installed from here.
    #[error("{program} is missing; install the package {package}")]
    Missing {
        /// The executable's name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program could not be run at all.
    #[error("{program} could not be run")]
    Run {
        /// Its name.
        program: String,
        /// What the kernel said.
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
    /// A server did not answer in time.
    #[error("{server} did not answer within {waited:?}: {output}")]
    NotReady {
        /// Its name.
        server: String,
        /// How long it had.
        waited: Duration,
        /// What it printed.
        output: String,
    },
    /// A server answered something else than the case is about.
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
    /// Load met errors, so its figures say nothing.
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
        /// What the kernel said.
        source: io::Error,
    },
    /// A file could not be read or written.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No port, temporary file or process figure to be had.
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
