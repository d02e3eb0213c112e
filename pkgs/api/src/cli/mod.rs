//! The command line: the server and other commands.

pub mod database;
pub mod key;
pub mod migrate;
pub mod openapi;
pub mod seed;
pub mod serve;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use service::handover::{self, Reload, ReloadError};
use service::output::Closed;
use service::{exit, manual, settings};

/// The binary's name.
pub const NAME: &str = "linerate-api";

/// The end of `--help` and of the manual page.
const AFTERWORD: &str = "\
Examples:
  linerate-api serve
      serves the API on a database of SQLite, without keys and to this machine only
  linerate-api key add frontend
  linerate-api migrate

Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one line on standard error.";

/// A JSON REST API over users, on SQLite or PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = NAME, version, propagate_version = true, after_long_help = AFTERWORD)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
// It is made once per process, so a box would gain nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the API.
    Serve(serve::Args),
    /// Make the running server take over what has changed: its program, these settings, or what SIGHUP reads again. No
    /// connection is lost.
    Reload(Reload),
    /// Migrate the database's schema; creates an SQLite database if there is none.
    Migrate(migrate::Args),
    /// Add, list and revoke API keys.
    Key(key::Args),
    /// Fill the database with generated users of about 2 KB. The same number always gives the same user.
    Seed(seed::Args),
    /// Print the API's description (OpenAPI 3.1).
    Openapi(openapi::Args),
    /// Print shell completions.
    Completions(manual::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands.
    Man(manual::ManArgs),
}

/// Standard output of commands.
pub type Output = service::output::Output<Error>;

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server could not start, or failed.
    #[error(transparent)]
    Serve(#[from] serve::Error),
    /// The running server could not be reloaded.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// There is no such key.
    #[error("there is no key {0}")]
    NoKey(i64),
    /// The system has no randomness.
    #[error("cannot make a key: {0}")]
    Randomness(getrandom::Error),
    /// Standard output cannot be written.
    #[error(transparent)]
    Output(#[from] Closed),
    /// Standard output, a runtime, or a directory for manual pages failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The command line for manual pages and completions.
fn command() -> clap::Command {
    settings::command::<Cli>("api", "serve")
}

/// Parses the arguments and runs what they ask for.
pub fn main() -> ExitCode {
    ExitCode::from(finish(run(settings::parse("api", "serve"))))
}

/// Reports an error. Returns the exit code.
fn finish(outcome: Result<(), Error>) -> u8 {
    match outcome {
        Ok(()) => exit::OK,
        Err(error) => {
            eprintln!("error: {}", exit::chain(&error));
            error.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<(), Error> {
    match cli.command {
        Command::Serve(args) => Ok(serve::run(args)?),
        Command::Reload(args) => reload(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Key(args) => key::run(args),
        Command::Seed(args) => seed::run(&args),
        Command::Openapi(args) => openapi::run(&args),
        Command::Completions(args) => Ok(args.print(command(), io::stdout())?),
        Command::Man(args) => Ok(args.print(command(), io::stdout())?),
    }
}

fn reload(reload: &Reload) -> Result<(), Error> {
    match handover::wanted("api", reload) {
        (Cli { command: Command::Serve(args) }, fingerprint) => {
            Ok(reload.run("api", &args.handover, fingerprint)?)
        }
        _ => Ok(()),
    }
}

impl Error {
    /// [`exit::USAGE`] if other input could have helped, otherwise [`exit::FAILURE`].
    fn exit_code(&self) -> u8 {
        match self {
            Self::NoKey(_) => exit::USAGE,
            Self::Serve(error) if error.is_usage() => exit::USAGE,
            Self::Reload(error) if error.is_usage() => exit::USAGE,
            Self::Database(error) if error.is_usage() => exit::USAGE,
            _ => exit::FAILURE,
        }
    }
}
