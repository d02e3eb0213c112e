//! `check`: validates a file of rules.

use std::fs::File;
use std::path::PathBuf;

use super::Error;
use crate::site::root::Symlinks;
use crate::site::{self, Options, Site};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file of rules.
    pub file: PathBuf,

    /// Also read what the rules name, as `serve` does at its start: error pages and lists of files below this directory,
    /// the roots of other sites, passwords and keys
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Which symbolic links are followed, as `serve` is told
    #[arg(long, value_enum, default_value_t = Symlinks::Beneath, requires = "root")]
    pub symlinks: Symlinks,
}

/// Reads and validates the rules.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let rules = site::rules_of(&args.file, File::open(&args.file))?;
    if let Some(root) = &args.root {
        Site::load(&Options {
            root: root.clone(),
            rules: Some(args.file.clone()),
            symlinks: args.symlinks,
            hidden: false,
            listing: false,
            precompressed: false,
            charset: String::new(),
            origin: None,
        })?;
    }
    println!("{} rules, {} error pages", rules.rule.len(), rules.error_pages.len());
    Ok(())
}
