//! Why the database did not answer.

use std::error::Error as Cause;

/// Why the database did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All connections are busy, and were for as long as a request waits for one.
    #[error("the database is busy")]
    Busy,
    /// It cannot be reached, or did not answer in time. Whether a write was done is then not known.
    #[error("the database cannot be reached")]
    Unreachable(#[source] Box<dyn Cause + Send + Sync>),
    /// It is not one that this program can use, which was told nothing and has not changed.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// Anything else.
    #[error("the database failed")]
    Failed(#[source] Box<dyn Cause + Send + Sync>),
}

impl Error {
    /// For `map_err`.
    pub(crate) fn failed(cause: impl Into<Box<dyn Cause + Send + Sync>>) -> Self {
        Self::Failed(cause.into())
    }

    /// The same for another who waits for the same answer.
    pub(crate) fn again(&self) -> Self {
        let cause = |cause: &(dyn Cause + Send + Sync)| cause.to_string().into();
        match self {
            Self::Busy => Self::Busy,
            Self::Unusable(unusable) => Self::Failed(unusable.to_string().into()),
            Self::Unreachable(error) => Self::Unreachable(cause(&**error)),
            Self::Failed(error) => Self::Failed(cause(&**error)),
        }
    }
}

/// Why a database cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Where a file should be.
    #[error("it is a directory")]
    Directory,
    /// The file cannot be made, or read.
    #[error(transparent)]
    File(std::io::Error),
    /// A path that no URI can have.
    #[error("its name is not UTF-8")]
    Name,
    /// Something else is in the file.
    #[error("it is no SQLite database")]
    NoDatabase,
    /// Somebody else's data is in it.
    #[error("it is the database of another program")]
    Foreign,
    /// This program has an older schema.
    #[error("it was written by a newer release of linerate-api (schema {found}; this one knows {known})")]
    Newer {
        /// The schema of the database.
        found: i64,
        /// The latest of this program.
        known: i64,
    },
}
