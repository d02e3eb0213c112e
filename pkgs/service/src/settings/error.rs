//! Errors of settings, as one line each.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Given;
use crate::exit::{USAGE, one_line};

/// Why the settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}: line {line}: {}", path.display(), one_line(reason))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A key of the file names no setting, or has not exactly one value.
    #[error("{}: {key}: {reason}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The setting's name, including tables: `log-level`.
        key: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A value from the file or the environment is not acceptable.
    #[error("{origin}: {}", brief(error))]
    Value {
        /// Where the value is.
        origin: Origin,
        /// clap's error.
        error: clap::Error,
    },
    /// Settings exclude each other, and not all of them are on the command line.
    #[error("{setting} cannot be used with {others}")]
    Conflict {
        /// One of them: where its value is, or its flag.
        setting: String,
        /// The others.
        others: String,
    },
    /// The command line is not acceptable, or requests help or the version.
    #[error("{}", brief(.0))]
    Usage(#[from] clap::Error),
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a file.
    File {
        /// The file.
        path: PathBuf,
        /// The key, including tables: `log-level`.
        key: String,
    },
    /// A variable of the environment.
    Env(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, key } => write!(f, "{}: {key}", path.display()),
            Self::Env(variable) => f.write_str(variable),
        }
    }
}

impl Error {
    /// Classifies clap's `error` by the origin of the values that it is about: those `given` and not overridden.
    pub(super) fn of(error: clap::Error, given: &HashMap<String, Given>) -> Self {
        let texts = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => std::slice::from_ref(text),
            Some(ContextValue::Strings(texts)) => texts,
            _ => &[],
        };
        // clap names an argument as in its help: `--log-level <FILTER>`.
        let given = |arg: &String| given.get(arg.strip_prefix("--")?.split([' ', '=', '[']).next()?);
        let [arg, others] = [ContextKind::InvalidArg, ContextKind::PriorArg].map(texts);
        // Of an argument given twice, both are the same.
        if error.kind() == ErrorKind::ArgumentConflict
            && arg != others
            && arg.iter().chain(others).any(|arg| given(arg).is_some())
        {
            // Nobody typed the flags of given values.
            let place =
                |arg: &String| given(arg).map_or_else(|| arg.clone(), |given| given.origin.to_string());
            let places = |args: &[String]| args.iter().map(place).collect::<Vec<_>>().join(", ");
            return Self::Conflict { setting: places(arg), others: places(others) };
        }
        let value = texts(ContextKind::InvalidValue).first().map(OsStr::new);
        match (arg.first().and_then(given), texts(ContextKind::Custom)) {
            // The error of a secret contains no value, but the reason alone.
            (Some(given), [reason]) => {
                let error = clap::Error::raw(error.kind(), reason);
                Self::Value { origin: given.origin.clone(), error }
            }
            // The command line may say the same setting in a way that is no value.
            (Some(given), _) if given.values.iter().any(|given| Some(given.as_os_str()) == value) => {
                Self::Value { origin: given.origin.clone(), error }
            }
            _ => Self::Usage(error),
        }
    }

    /// Ends the process. Help and version go to stdout with exit code 0; anything else is one line on stderr and
    /// [`USAGE`].
    pub fn exit(&self) -> ! {
        match self {
            Self::Usage(error) if !error.use_stderr() || shows_help(error) => error.exit(),
            error => {
                // The sources are left out: each variant already contains its source's text, shortened for clap's
                // errors.
                eprintln!("error: {}", one_line(&error.to_string()));
                std::process::exit(USAGE.into())
            }
        }
    }
}

/// Whether the error is the help, which a program without arguments shows.
fn shows_help(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// clap's message on one line, without usage and without the pointer to help.
fn brief(error: &clap::Error) -> String {
    let mut text = error.to_string();
    // The reason why a secret is refused contains none.
    for (_, value) in error.context().filter(|(kind, _)| *kind != ContextKind::Custom) {
        let values = match value {
            ContextValue::String(value) => std::slice::from_ref(value),
            ContextValue::Strings(values) => values,
            _ => continue,
        };
        // A secret in the wrong place: after a command that takes none, or as a part of another flag.
        for value in values.iter().filter(|value| may_be_secret(value)) {
            text = text.replace(value.as_str(), "…");
        }
    }
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|tail| text.find(tail)).min();
    let text = &text[..end.unwrap_or(text.len())];
    one_line(&text.strip_prefix("error: ").unwrap_or(text).replace("\n\n  tip: ", "; tip: "))
}

/// Whether an unknown text looks like a URL with a password, or like a piece of one.
fn may_be_secret(value: &str) -> bool {
    value.contains('@') || value.contains("://") || value.to_ascii_lowercase().contains("password")
}
