//! `check`: whether a file of rules makes sense.

use std::path::PathBuf;

use super::Error;
use crate::site::{self, rules};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file of rules.
    pub file: PathBuf,
}

/// Reads the rules.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let path = args.file.clone();
    let text = std::fs::read_to_string(&path)
        .map_err(|source| Error::Site(site::Error::File { path: path.clone(), source }))?;
    let rules =
        rules::Rules::parse(&text).map_err(|source| Error::Site(site::Error::Rules { path, source }))?;
    println!("{} rules, {} error pages", rules.rule.len(), rules.error_pages.len());
    Ok(())
}
