//! Command-line arguments of both logs.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;

/// Whether and where requests are logged.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct AccessLogArgs {
    /// Appends one line of JSON for each request to this file, or to standard output if it is `-`. SIGHUP reopens the
    /// file. A line has the time, the request's id, client, method, host, path, status, bytes and duration, the
    /// versions of HTTP and TLS, and the id of the key.
    #[arg(long, value_name = "FILE", help_heading = "Access log")]
    pub access_log: Option<Destination>,

    /// Logs one in this many requests of each worker.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Access log")]
    pub access_log_sample: NonZero<u64>,

    /// Whether and where requests are traced.
    #[command(flatten)]
    pub traces: TraceArgs,
}

/// Whether and where requests are traced.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct TraceArgs {
    /// Sends a span of each traced request to this OpenTelemetry collector, as JSON over HTTP. If a request's
    /// `traceparent` says whether it is recorded, that decides.
    #[arg(long, value_name = "URL", help_heading = "Access log")]
    pub otlp: Option<CollectorUrl>,

    /// Traces one in this many of each worker's other requests.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Access log")]
    pub otlp_sample: NonZero<u64>,
}

/// Whether and where writes are logged.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct AuditLogArgs {
    /// Appends one line of JSON for each write to this file, or to standard output if it is `-`. SIGHUP reopens the
    /// file, which may be the access log's. A line has the time, who wrote what, and digests before and after.
    #[arg(long, value_name = "FILE", help_heading = "Access log")]
    pub audit_log: Option<Destination>,
}

/// The destination of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output, written as `-`.
    Stdout,
    /// The end of a file.
    File(PathBuf),
}

/// A collector's URL for traces. Only `http`: if traces leave the machine or its network, the collector encrypts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(String);

/// A text that is no URL of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST:PORT, where a collector takes OTLP by HTTP")]
pub struct InvalidCollector;

impl CollectorUrl {
    /// The path of traces by default (OTLP 1.9, "OTLP/HTTP Request").
    const PATH: &str = "/v1/traces";

    /// The whole URL.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CollectorUrl {
    type Err = InvalidCollector;

    fn from_str(text: &str) -> Result<Self, InvalidCollector> {
        let uri: http::Uri = text.parse().map_err(|_| InvalidCollector)?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        match (uri.scheme_str(), authority, uri.path_and_query().map_or("/", |path| path.as_str())) {
            (Some("http"), Some(authority), path) if !authority.host().is_empty() => {
                Ok(Self(format!("http://{authority}{}", if path == "/" { Self::PATH } else { path })))
            }
            _ => Err(InvalidCollector),
        }
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no destination.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_named_by_its_host_or_whole() {
        for (text, url) in [
            ("http://127.0.0.1:4318", Some("http://127.0.0.1:4318/v1/traces")),
            ("http://collector", Some("http://collector/v1/traces")),
            ("http://[::1]:4318/", Some("http://[::1]:4318/v1/traces")),
            (
                "http://collector:80/otlp/v1/traces?tenant=1",
                Some("http://collector:80/otlp/v1/traces?tenant=1"),
            ),
            ("https://collector", None),
            ("collector:4318", None),
            ("http://", None),
            ("http://key@collector", None),
            ("/v1/traces", None),
            ("", None),
        ] {
            let parsed = text.parse::<CollectorUrl>().map(|url| url.to_string());
            assert_eq!(parsed.ok().as_deref(), url, "{text}");
        }
    }
}
