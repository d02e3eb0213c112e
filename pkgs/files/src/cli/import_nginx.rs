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

/// Why there are no rules.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its content.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        source: nginx::Error,
    },
    /// Standard output.
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
