//! Nodes and waves, from a TOML file; the modules' `linerate.fleet.waves` writes it.
//!
//! ```
//! use linerate::fleet::settings::Settings;
//!
//! let text = r#"
//!     repository = "/srv/boxes.git"
//!     source = "main"                        # what the first wave is promoted to
//!     waves = ["canary", "wave1", "wave2"]   # refs, in their order
//!     well-for = "30m"                       # how long a wave has to be well before the next
//!     max-error-percent = 1.0                # of requests, answered 5xx
//!
//!     [[node]]
//!     name = "box-1"
//!     wave = "canary"
//!     services = ["http://10.0.0.1:8081"]    # admin listeners
//!     machine = "http://10.0.0.1:9100"       # node_exporter, for the doctor's findings
//! "#;
//! assert_eq!(Settings::parse(text).unwrap().nodes[0].name, "box-1");
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// The file's path.
pub const SETTINGS: &str = "/etc/linerate/fleet.toml";
/// The longest file, in bytes; [`MAX_NODES`] nodes need far less.
const MAX_BYTES: u64 = 1 << 20;
/// How many nodes there may be.
const MAX_NODES: usize = 1000;
/// How many admin listeners a node may have.
const MAX_SERVICES: usize = 16;
/// The longest time for `well-for`: a month.
const MAX_WELL: Duration = Duration::from_secs(31 * 86_400);

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// The bare repository whose refs hosts follow.
    pub repository: PathBuf,
    /// The branch that the first wave is promoted to.
    pub source: RefName,
    /// The branches that hosts follow, in order.
    pub waves: Vec<RefName>,
    /// How long a wave has to be healthy.
    #[serde(default = "well_for")]
    pub well_for: Span,
    /// The percentage of a node's requests that may be answered with 5xx.
    #[serde(default = "max_error_percent")]
    pub max_error_percent: f64,
    /// The certificate authorities for admin listeners, in PEM. Default: those that the system trusts.
    pub cacert: Option<PathBuf>,
    /// The boxes.
    #[serde(default, rename = "node")]
    pub nodes: Vec<Node>,
}

/// A box.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The branch that it follows.
    pub wave: RefName,
    /// The URLs of its services' admin listeners.
    pub services: Vec<Base>,
    /// The URL of its node_exporter, which exports the doctor's findings. Without it, findings aren't checked.
    pub machine: Option<Base>,
}

/// The start of URLs: `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Base(String);

impl Base {
    /// The URL for a path that starts with a slash.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

impl std::fmt::Display for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Base {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let host = host.map(|host| host.strip_suffix('/').unwrap_or(host));
        let is_host = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
        };
        match host {
            Some(host) if is_host(host) => Ok(Self(text.trim_end_matches('/').to_owned())),
            _ => Err(format!("expected http://HOST:PORT or https://HOST:PORT, not {text:?}")),
        }
    }
}

impl TryFrom<String> for Base {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The name of a branch: letters, digits and `-_.`. git accepts such a name in every place where it is used here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct RefName(String);

impl RefName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for RefName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RefName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        // The names that git-check-ref-format(1) still refuses.
        let refused =
            text.contains("..") || text.ends_with('.') || text.ends_with(".lock") || text.len() > 100;
        if begins && text.bytes().all(plain) && !refused {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "expected a branch, such as wave1, not {:?}",
                text.chars().take(80).collect::<String>()
            ))
        }
    }
}

impl TryFrom<String> for RefName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RefName> for String {
    fn from(name: RefName) -> Self {
        name.0
    }
}

/// A time: a whole number of seconds, minutes, hours or days, such as `90s`, `30m`, `2h` or `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("expected a time such as 90s, 30m or 2h, of 31 days at most, not {text:?}");
        let unit = text.chars().last().ok_or_else(refused)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(refused()),
        };
        let count = &text[..text.len() - 1];
        let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count: Option<u64> = digits.then(|| count.parse().ok()).flatten();
        let span = count.and_then(|count| count.checked_mul(seconds)).map(Duration::from_secs);
        span.filter(|span| *span <= MAX_WELL).map(Self).ok_or_else(refused)
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

fn well_for() -> Span {
    Span(Duration::from_secs(30 * 60))
}

fn max_error_percent() -> f64 {
    1.0
}

/// Why a file isn't usable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It can't be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Its content is wrong.
    #[error("{}: {source}", path.display())]
    Wrong {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: Box<ParseError>,
    },
}

/// What is wrong with the content.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It isn't TOML, or has other fields.
    #[error("{0}")]
    Toml(String),
    /// It exceeds a limit.
    #[error("{0}")]
    TooMany(String),
    /// Its parts don't fit together.
    #[error("{0}")]
    Contradiction(String),
}

impl Settings {
    /// The settings in this file.
    ///
    /// # Errors
    /// When it can't be read, or its parts don't fit together.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let wrong = |source| Error::Wrong { path: path.to_owned(), source: Box::new(source) };
        if text.len() as u64 > MAX_BYTES {
            return Err(wrong(ParseError::TooMany(format!("a file of more than {MAX_BYTES} bytes"))));
        }
        Self::parse(&text).map_err(wrong)
    }

    /// The settings in this text.
    ///
    /// # Errors
    /// When it isn't TOML, has other fields, or its parts don't fit together.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let one_line = |error: toml::de::Error| {
            let line = error.span().map(|span| text[..span.start].lines().count().max(1));
            let at = line.map_or(String::new(), |line| format!("line {line}: "));
            ParseError::Toml(format!("{at}{}", error.message().replace('\n', " ")))
        };
        let settings: Self = toml::from_str(text).map_err(one_line)?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), ParseError> {
        let contradiction = |said: String| Err(ParseError::Contradiction(said));
        if self.nodes.len() > MAX_NODES {
            return Err(ParseError::TooMany(format!("more than {MAX_NODES} nodes")));
        }
        if self.waves.is_empty() {
            return contradiction("waves: at least one is needed".to_owned());
        }
        let mut names: Vec<&str> = self.waves.iter().chain([&self.source]).map(RefName::as_str).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return contradiction(format!("waves and source: {} is there twice", twice[0]));
        }
        if !(0.0..=100.0).contains(&self.max_error_percent) {
            return contradiction("max-error-percent: expected 0 to 100".to_owned());
        }
        let mut known = std::collections::BTreeSet::new();
        for node in &self.nodes {
            let Node { name, wave, services, .. } = node;
            if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
                return contradiction(format!("node {name:?}: expected a name of 1 to 100 characters"));
            }
            if !known.insert(name) {
                return contradiction(format!("node {name}: is there twice"));
            }
            if !self.waves.contains(wave) {
                return contradiction(format!("node {name}: there is no wave {wave}"));
            }
            if services.is_empty() || services.len() > MAX_SERVICES {
                return contradiction(format!("node {name}: expected 1 to {MAX_SERVICES} services"));
            }
        }
        Ok(())
    }

    /// What a wave is promoted to: the previous wave's commit, or the source.
    pub fn before(&self, wave: &RefName) -> Option<&RefName> {
        let index = self.waves.iter().position(|one| one == wave)?;
        Some(if index == 0 { &self.source } else { &self.waves[index - 1] })
    }

    /// The nodes that follow a branch.
    pub fn of_wave<'a>(&'a self, wave: &'a RefName) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |node| node.wave == *wave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "repository = \"/r\"\nsource = \"main\"\nwaves = [\"canary\", \"wave1\"]\n";

    #[test]
    fn a_wave_follows_the_one_before_it() {
        let settings = Settings::parse(GOOD).unwrap();
        let before = |wave: &str| settings.before(&wave.parse().unwrap()).map(RefName::as_str);
        assert_eq!((before("canary"), before("wave1"), before("main")), (Some("main"), Some("canary"), None));
        assert_eq!(settings.well_for.0, Duration::from_secs(1800));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_named() {
        let node = "[[node]]\nname = \"a\"\nwave = \"canary\"\nservices = [\"http://h:1\"]\n";
        for (text, expected) in [
            ("x = 1".to_owned(), "line 1: unknown field `x`"),
            (GOOD.replace("canary", "main"), "main is there twice"),
            (GOOD.replace("[\"canary\", \"wave1\"]", "[]"), "at least one"),
            (GOOD.replace("canary", "-d"), "expected a branch"),
            (GOOD.replace("canary", "a..b"), "expected a branch"),
            (GOOD.replace("canary", "a/b"), "expected a branch"),
            (format!("{GOOD}well-for = \"30\"\n"), "expected a time"),
            (format!("{GOOD}well-for = \"99999999999999999999d\"\n"), "expected a time"),
            (format!("{GOOD}well-for = \"é\"\n"), "expected a time"),
            (format!("{GOOD}max-error-percent = nan\n"), "0 to 100"),
            (format!("{GOOD}{}", node.replace("canary", "wave9")), "there is no wave wave9"),
            (format!("{GOOD}{node}{node}"), "node a: is there twice"),
            (format!("{GOOD}{}", node.replace("http://h:1", "http://h:1/x")), "expected http://HOST:PORT"),
            (format!("{GOOD}{}", node.replace("http://h:1", "http://u@h")), "expected http://HOST:PORT"),
            (
                format!("{GOOD}{}", node.replace("http://h:1", "file:///etc/shadow")),
                "expected http://HOST:PORT",
            ),
            (format!("{GOOD}{}", node.replace("\"http://h:1\"", "")), "1 to 16 services"),
        ] {
            let said = Settings::parse(&text).unwrap_err().to_string();
            assert!(said.contains(expected) && !said.contains('\n'), "{text}: {said}");
        }
    }

    #[test]
    fn times_are_numbers_with_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("2h", 7200), ("31d", 31 * 86_400), ("0s", 0)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["", "s", "1", "-1s", "1.5h", "32d", " 1s", "1w"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
