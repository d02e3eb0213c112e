//! The command line of both logs.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

/// Whether and where requests are logged.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct AccessLogArgs {
    /// Appends a line of JSON for each request to this file, or to standard output where it is `-`; the file is opened anew
    /// at SIGHUP. The line has the time, the request's id, its client, method, host, path, status, bytes, duration, the
    /// versions of HTTP and TLS, and the id of the key.
    #[arg(long, value_name = "FILE", help_heading = "Access log")]
    pub access_log: Option<Destination>,

    /// Logs one in so many requests of each worker.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Access log")]
    pub access_log_sample: NonZero<u64>,
}

/// Whether and where writes are logged.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct AuditLogArgs {
    /// Appends a line of JSON for each write to this file, or to standard output where it is `-`; the file is opened anew at
    /// SIGHUP, and may be that of the access log. The line has the time, who wrote what, and digests from before and after.
    #[arg(long, value_name = "FILE", help_heading = "Access log")]
    pub audit_log: Option<Destination>,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output, written `-`.
    Stdout,
    /// The end of a file.
    File(PathBuf),
}

/// No destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a file, or - for standard output")]
pub struct InvalidDestination;

impl FromStr for Destination {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, InvalidDestination> {
        match text {
            "" => Err(InvalidDestination),
            "-" => Ok(Self::Stdout),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}
