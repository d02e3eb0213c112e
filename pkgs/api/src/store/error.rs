//! Errors of the database.

use std::error::Error as Cause;

/// Why the database did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All connections were busy for as long as a request waits for one, or too many writes are waiting.
    #[error("the database is busy")]
    Busy,
    /// It cannot be reached, or did not answer in time. It is then unknown whether a write was done.
    #[error("the database cannot be reached")]
    Unreachable(#[source] Box<dyn Cause + Send + Sync>),
    /// There is no space for a write.
    #[error("the disk is full")]
    Full,
    /// The database cannot be written.
    #[error("the database is read-only")]
    ReadOnly,
    /// This program cannot use the database, and has not changed it.
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

    /// The same error for another waiter of the same answer.
    pub(crate) fn again(&self) -> Self {
        let cause = |cause: &(dyn Cause + Send + Sync)| cause.to_string().into();
        match self {
            Self::Busy => Self::Busy,
            Self::Full => Self::Full,
            Self::ReadOnly => Self::ReadOnly,
            Self::Unusable(unusable) => Self::Failed(unusable.to_string().into()),
            Self::Unreachable(error) => Self::Unreachable(cause(&**error)),
            Self::Failed(error) => Self::Failed(cause(&**error)),
        }
    }
}

/// Why a database cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It is a directory.
    #[error("it is a directory")]
    Directory,
    /// The file cannot be created or read.
    #[error(transparent)]
    File(std::io::Error),
    /// Its path cannot be in a URI.
    #[error("its name is not UTF-8")]
    Name,
    /// The file is not a database.
    #[error("it is no SQLite database")]
    NoDatabase,
    /// The database belongs to another program.
    #[error("it is the database of another program")]
    Foreign,
    /// The database has a newer schema.
    #[error("it was written by a newer release of linerate-api (schema {found}; this one knows {known})")]
    Newer {
        /// The database's schema.
        found: i64,
        /// The newest schema of this program.
        known: i64,
    },
}
