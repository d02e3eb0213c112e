//! `sign`: makes a URL that is valid for a limited time. `password`: hashes a password.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::percent_encode;
use service::password::{self, InvalidPassword};

use crate::http::path::{self, ESCAPED};
use crate::site::signature::{Key, MIN_KEY_BYTES};

/// Arguments of `sign`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file with the key that the rules name: at least 32 bytes.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,

    /// How long the URL is valid, in seconds.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    pub valid_for: u64,

    /// The URL or its path, without a query.
    pub url: String,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key cannot be read.
    #[error("{}: {source}", path.display())]
    Key {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is short enough to be guessed.
    #[error("{}: a key has at least {MIN_KEY_BYTES} bytes", .0.display())]
    Short(PathBuf),
    /// The URL names no file.
    #[error("{0:?} is no URL of a file, or has a query")]
    Url(String),
    /// The password cannot be hashed.
    #[error(transparent)]
    Password(#[from] InvalidPassword),
    /// Standard input or output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Prints the URL.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let bytes = std::fs::read(&args.key).map_err(|source| Error::Key { path: args.key.clone(), source })?;
    let key = Key::new(&bytes).ok_or_else(|| Error::Short(args.key.clone()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let url = signed(&key, &args.url, now.as_secs().saturating_add(args.valid_for))
        .ok_or_else(|| Error::Url(args.url.clone()))?;
    Ok(writeln!(io::stdout(), "{url}")?)
}

fn signed(key: &Key, url: &str, expires: u64) -> Option<String> {
    let path_at = match url.split_once("://") {
        Some((scheme, rest)) => scheme.len() + "://".len() + rest.find('/')?,
        None => 0,
    };
    let (host, path) = url.split_at(path_at);
    if path.contains(['?', '#']) {
        return None;
    }
    let decoded = path::decode(path, true).ok()?;
    let path = [b"/", &decoded[..]].concat();
    let query = key.sign(&path, expires);
    Some(format!("{host}{}?{query}", percent_encode(&path, ESCAPED)))
}

/// Reads a password as one line from standard input, and prints its hash.
pub(super) fn password() -> Result<(), Error> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let hash = password::hash(line.trim_end_matches(['\r', '\n']))?;
    Ok(writeln!(io::stdout(), "{hash}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_signed_by_its_path_alone() {
        let key = Key::new(&[b'k'; MIN_KEY_BYTES]).expect("a key");
        let plain = signed(&key, "/a b", 9).expect("a URL");
        let signature = plain.strip_prefix("/a%20b?").expect("a path");
        for url in ["/a%20b", "//a%20b", "/./a%20b"] {
            assert_eq!(signed(&key, url, 9).as_deref(), Some(&*plain), "{url}");
        }
        let url = signed(&key, "https://h:1/a%20b", 9).expect("a URL");
        assert_eq!(url, format!("https://h:1/a%20b?{signature}"));
        for url in ["a", "", "https://h", "/a?b", "/a#b", "/../a", "/%zz"] {
            assert_eq!(signed(&key, url, 9), None, "{url}");
        }
    }
}
