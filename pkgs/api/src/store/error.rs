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
            Self::Unreachable(error) => Self::Unreachable(cause(&**error)),
            Self::Failed(error) => Self::Failed(cause(&**error)),
        }
    }
}
