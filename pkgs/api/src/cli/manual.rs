//! `completions` and `man`: the command line's own description, for shells and readers.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap_complete::Shell;
use clap_mangen::Man;

use super::{NAME, command};

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
pub(super) fn completions(args: &CompletionsArgs) -> io::Result<()> {
    // Gathered first: the generator panics where its output is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), NAME, &mut script);
    io::stdout().write_all(&script)
}

/// Prints the manual page, or writes them all.
pub(super) fn man(args: &ManArgs) -> io::Result<()> {
    match &args.directory {
        None => Man::new(command()).render(&mut io::stdout()),
        Some(directory) => {
            fs::create_dir_all(directory)?;
            clap_mangen::generate_to(command(), directory)
        }
    }
}
