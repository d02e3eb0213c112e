//! The command line: the server, and the links by hand.

pub mod database;
pub mod error;
pub mod policy;
pub mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use error::Error;

/// A URL shortener that answers redirects at the limit of the machine.
#[derive(Debug, Parser)]
#[command(name = "linerate-links", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer redirects, and the API on the admin listener.
    Serve(serve::Args),
}

/// Parses the arguments and runs what they ask for.
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn run(cli: Cli) -> Result<(), Error> {
    match cli.command {
        Command::Serve(args) => Ok(serve::run(args)?),
    }
}
