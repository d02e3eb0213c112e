//! Logs: tracing to stderr, as text for people or JSON for programs.
//!
//! With the feature `no-tracing` every log statement compiles to nothing and no subscriber is linked.

mod log_limit;

use clap::{Args, ValueEnum};

use subscriber::filter;

pub use self::log_limit::LogLimit;

/// Which logs are written, and how.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct LogArgs {
    /// What to log: off, error, warn, info, debug, trace, or by module: `info,links=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = filter)]
    pub log_level: String,

    /// How to log: text for people, json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: Format,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for people, in colour on a terminal.
    Text,
    /// One JSON object per line.
    Json,
}

/// Sends logs to stderr from here on. Only the first call in a process has an effect.
pub fn init(args: &LogArgs) {
    subscriber::init(args);
}

#[cfg(all(feature = "tracing-subscriber", not(feature = "no-tracing")))]
mod subscriber {
    use std::io::{IsTerminal, stderr};
    use std::os::fd::AsFd;

    use tracing_subscriber::filter::{EnvFilter, ParseError};
    use tracing_subscriber::layer::{Layer, SubscriberExt};
    use tracing_subscriber::util::SubscriberInitExt;
    use tracing_subscriber::{fmt, registry};

    use super::{Format, LogArgs};

    /// Library messages about starting and stopping repeat the services' own. They are shown only if the setting names
    /// the library.
    const QUIET: &str = "actix_server=warn";

    pub(super) fn filter(text: &str) -> Result<String, ParseError> {
        EnvFilter::builder().parse(text).map(|_| text.to_owned())
    }

    pub(super) fn init(args: &LogArgs) {
        let lines = fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
        let lines = match (args.log_format, under_journald()) {
            (Format::Text, false) => lines.boxed(),
            (Format::Text, true) => lines.without_time().boxed(),
            (Format::Json, false) => lines.json().flatten_event(true).boxed(),
            (Format::Json, true) => lines.json().flatten_event(true).without_time().boxed(),
        };
        // The setting's parser was strict, so lossy parsing loses nothing.
        let filter = EnvFilter::builder().parse_lossy(format!("{QUIET},{}", args.log_level));
        let _ = registry().with(filter).with(lines).try_init();
    }

    /// Whether stderr goes to the journal, which adds the time itself. `JOURNAL_STREAM` is the device and inode of the
    /// stream that systemd passed (systemd.exec(5)).
    fn under_journald() -> bool {
        let Ok(stat) = rustix::fs::fstat(stderr().as_fd()) else { return false };
        std::env::var("JOURNAL_STREAM")
            .is_ok_and(|stream| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
    }
}

#[cfg(not(all(feature = "tracing-subscriber", not(feature = "no-tracing"))))]
mod subscriber {
    pub(super) fn init(_: &super::LogArgs) {}

    pub(super) fn filter(text: &str) -> Result<String, std::convert::Infallible> {
        Ok(text.to_owned())
    }
}

#[cfg(all(test, feature = "tracing-subscriber", not(feature = "no-tracing")))]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_means_nothing_is_refused() {
        let cases = [
            ("info", true),
            ("warn,links=debug", true),
            ("off", true),
            ("links=loud", false),
            ("info,=,", false),
        ];
        for (text, valid) in cases {
            assert_eq!(filter(text).is_ok(), valid, "{text}");
        }
    }
}
