//! `import-nginx`: converts nginx's configuration to rules.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use crate::nginx;
use crate::site::rules;

/// Arguments of `import-nginx`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// nginx's configuration with its includes, as `nginx -T` prints it.
    pub file: PathBuf,
}

/// Why the import failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The configuration has a syntax error.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// Its path.
        path: PathBuf,
        /// The error.
        source: nginx::Error,
    },
    /// Standard output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Prints rules. Reports on standard error what rules cannot express.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let failed = |source| Error::File { path: args.file.clone(), source };
    let mut text = String::new();
    let file = File::open(&args.file).map_err(failed)?;
    let read = file.take(rules::MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > rules::MAX_BYTES {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let imported =
        nginx::import(&text).map_err(|source| Error::Syntax { path: args.file.clone(), source })?;
    for (line, why) in &imported.left {
        let why: String = why.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        eprintln!("{}:{line}: {why}", args.file.display());
    }
    Ok(io::stdout().write_all(imported.rules.as_bytes())?)
}
