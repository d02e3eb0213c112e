//! `check`: validates a file of rules.

use std::fs::File;
use std::path::PathBuf;

use super::Error;
use crate::site;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file of rules.
    pub file: PathBuf,
}

/// Reads and validates the rules.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let rules = site::rules_of(&args.file, File::open(&args.file))?;
    println!("{} rules, {} error pages", rules.rule.len(), rules.error_pages.len());
    Ok(())
}
