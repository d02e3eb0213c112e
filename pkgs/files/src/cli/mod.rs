//! The command line: the server and other commands.

pub mod check;
pub mod import_nginx;
pub mod origin;
pub mod serve;
pub mod sign;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use service::handover::{self, Reload, ReloadError};
use service::{exit, manual, settings};

use crate::site;

/// The binary's name.
pub const NAME: &str = "linerate-files";

/// The end of `--help` and of the manual page.
const AFTERWORD: &str = "\
Examples:
  linerate-files serve --root /srv/www
      serves what is below a directory, to this machine only, unless --listen says otherwise
  linerate-files check rules.toml

Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one line on standard error.";

/// A file server whose bodies never pass through user space.
#[derive(Debug, Parser)]
#[command(name = NAME, version, propagate_version = true, after_long_help = AFTERWORD)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
// Made once per process, so boxing it would only cost.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the files of a directory.
    Serve(serve::Args),
    /// Make the running server take over what has changed: its program, these settings, or what SIGHUP reads again. No
    /// connection is lost.
    Reload(Reload),
    /// Validate a file of rules, and say what is wrong with it.
    Check(check::Args),
    /// Convert the static part of nginx's configuration to rules, and say what they cannot express.
    ImportNginx(import_nginx::Args),
    /// Print a URL that is valid for a limited time, for a path with a `signed` rule.
    Sign(sign::Args),
    /// Read a password from standard input and print its argon2id hash, for a realm of the rules.
    Password,
    /// Print shell completions.
    Completions(manual::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands.
    Man(manual::ManArgs),
}

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server could not start.
    #[error(transparent)]
    Serve(#[from] serve::Error),
    /// The running server could not reload.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// The site cannot be served.
    #[error(transparent)]
    Site(#[from] site::Error),
    /// nginx's configuration cannot be imported.
    #[error(transparent)]
    ImportNginx(#[from] import_nginx::Error),
    /// A URL cannot be signed, or a password not hashed.
    #[error(transparent)]
    Sign(#[from] sign::Error),
    /// Standard output failed, or a directory for manual pages.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The command line for manual pages and completions.
fn command() -> clap::Command {
    settings::command::<Cli>("files", "serve")
}

/// Parses the arguments and runs what they ask for.
pub fn main() -> ExitCode {
    match run(settings::parse("files", "serve")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", exit::chain(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<(), Error> {
    match cli.command {
        Command::Serve(args) => Ok(serve::run(args)?),
        Command::Reload(args) => reload(&args),
        Command::Check(args) => check::run(&args),
        Command::ImportNginx(args) => Ok(import_nginx::run(&args)?),
        Command::Sign(args) => Ok(sign::run(&args)?),
        Command::Password => Ok(sign::password()?),
        Command::Completions(args) => Ok(args.print(command(), io::stdout())?),
        Command::Man(args) => Ok(args.print(command(), io::stdout())?),
    }
}

fn reload(reload: &Reload) -> Result<(), Error> {
    match handover::wanted("files", reload) {
        (Cli { command: Command::Serve(args) }, fingerprint) => {
            Ok(reload.run("files", &args.handover, fingerprint)?)
        }
        _ => Ok(()),
    }
}

impl Error {
    /// [`exit::USAGE`] if other input could have helped, otherwise [`exit::FAILURE`].
    fn exit_code(&self) -> u8 {
        match self {
            Self::Sign(sign::Error::Io(_)) | Self::ImportNginx(import_nginx::Error::Io(_)) => exit::FAILURE,
            Self::Site(_)
            | Self::Sign(_)
            | Self::ImportNginx(_)
            | Self::Serve(
                serve::Error::Site(_)
                | serve::Error::NotTcp(_)
                | serve::Error::NotOfOrigin(_)
                | serve::Error::Origin(_)
                | serve::Error::AccessLog(_)
                | serve::Error::Handover(_)
                | serve::Error::Listener(listener::Error::Tls(_)),
            ) => exit::USAGE,
            Self::Reload(error) if error.is_usage() => exit::USAGE,
            Self::Serve(_) | Self::Reload(_) | Self::Io(_) => exit::FAILURE,
        }
    }
}
