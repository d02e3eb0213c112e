//! Errors of objects and blocks that aren't available.

use std::io;

/// Why an object, or a part of it, isn't available. Everybody who waits for the same thing gets a clone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such object.
    #[error("there is no such object")]
    Missing,
    /// The origin doesn't let these credentials read the object. Without `s3:ListBucket`, it answers in the same way if
    /// the object is missing.
    #[error("the origin denies access")]
    Denied,
    /// The object was replaced or deleted while it was read.
    #[error("the object changed while it was read")]
    Changed,
    /// The origin's answer can't be used.
    #[error("the origin's answer cannot be used: {0}")]
    Answer(String),
    /// The origin can't be reached, or fails.
    #[error("the origin fails: {0}")]
    Failed(String),
    /// The origin took too long.
    #[error("the origin took too long")]
    TimedOut,
    /// There are already as many requests as allowed.
    #[error("too much is being fetched just now")]
    Busy,
    /// The cache directory fails for another reason than being full.
    #[error("the cache directory fails: {0}")]
    Disk(io::ErrorKind),
}

impl Error {
    /// Whether a stale copy may be served instead, since the origin hasn't said anything about the object.
    pub fn allows_stale(&self) -> bool {
        !matches!(self, Self::Missing | Self::Changed)
    }

    /// Its label in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Denied => "denied",
            Self::Changed => "changed",
            Self::Answer(_) => "answer",
            Self::Failed(_) => "failed",
            Self::TimedOut => "timeout",
            Self::Busy => "busy",
            Self::Disk(_) => "disk",
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Disk(error.kind())
    }
}
