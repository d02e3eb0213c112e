//! Why an object, or a part of it, is not to be had.

use std::io;

/// Why an object, or a part of it, is not to be had. Cloned to all who wait for the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such object.
    #[error("there is no such object")]
    Missing,
    /// The origin does not let these credentials read it. Without `s3:ListBucket` it says so of what is missing, too.
    #[error("the origin denies access")]
    Denied,
    /// The object was replaced or deleted while it was being read.
    #[error("the object changed while it was read")]
    Changed,
    /// The origin answers, and its answer cannot be used.
    #[error("the origin's answer cannot be used: {0}")]
    Answer(String),
    /// The origin cannot be reached, or fails.
    #[error("the origin fails: {0}")]
    Failed(String),
    /// The origin took longer than it may.
    #[error("the origin took too long")]
    TimedOut,
    /// As much is under way as may be.
    #[error("too much is being fetched just now")]
    Busy,
    /// The cache directory fails in another way than by being full.
    #[error("the cache directory fails: {0}")]
    Disk(io::ErrorKind),
}

impl Error {
    /// Whether a copy that is stale may be served instead: the origin has said nothing about the object.
    pub fn allows_stale(&self) -> bool {
        !matches!(self, Self::Missing | Self::Changed)
    }

    /// As metrics label it.
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
