//! `completions` and `man`: a command line's own description, for shells and readers.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

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

impl CompletionsArgs {
    /// Prints the completions of a command line.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn print(&self, mut command: Command, mut output: impl Write) -> io::Result<()> {
        let name = command.get_name().to_owned();
        // Gathered first: the generator panics where its output is closed.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        output.write_all(&script)
    }
}

impl ManArgs {
    /// Prints the manual page of a command line, or writes them all.
    ///
    /// # Errors
    /// Those of the directory where there is one, those of `output` otherwise.
    pub fn print(&self, command: Command, mut output: impl Write) -> io::Result<()> {
        match &self.directory {
            None => Man::new(command).render(&mut output),
            Some(directory) => {
                fs::create_dir_all(directory)?;
                clap_mangen::generate_to(command, directory)
            }
        }
    }
}
