//! `completions` and `man`: the command line's own description, for shells and readers.

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use service::output::Closed;

use super::{Cli, Error, NAME, Output};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// For which shell.
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write the page of each command into this directory instead of printing the main one.
    pub directory: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs, output: &mut Output) -> Result<(), Error> {
    // Gathered first: the generator panics where its output is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    Ok(output.raw().write_all(&script).map_err(Closed)?)
}

/// Prints the manual page, or writes them all.
pub fn man(args: &ManArgs, output: &mut Output) -> Result<(), Error> {
    match &args.directory {
        None => Ok(Man::new(Cli::command()).render(&mut output.raw()).map_err(Closed)?),
        Some(directory) => {
            let failed = |source| Error::File { path: directory.clone(), source };
            fs::create_dir_all(directory).map_err(failed)?;
            clap_mangen::generate_to(Cli::command(), directory).map_err(failed)
        }
    }
}
