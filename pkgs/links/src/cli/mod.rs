//! The command line: the server, and commands for links.
//!
//! Each subcommand is a file in [`commands`], with its `Args` and a `run`; [`serve`] is the server. Subcommands for
//! links take a [`backend::Backend`]: the database itself, or a running server's API.

pub mod api;
pub mod backend;
pub mod commands;
pub mod database;
pub mod error;
pub mod fields;
pub mod policy;
pub mod progress;
pub mod serve;
mod serve_error;
pub mod shown;
pub mod trust;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use service::handover::{self, Reload};
use service::output::Closed;
use service::{manual, settings};

pub use error::Error;

/// Standard output.
pub type Output = service::output::Output<Error>;

/// The binary's name.
pub const NAME: &str = "linerate-links";

/// The end of `--help` and of the manual page.
const AFTERWORD: &str = "\
Examples:
  linerate-links serve --public-url https://go.example
      answers visits at port 8080 and the API at port 8081, both from this machine only, unless --listen says otherwise
  linerate-links add https://example.com/ --code hello
  linerate-links list --search example
  linerate-links stats hello
  linerate-links export links.csv

Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one line on standard error.

Commands work on the database, whether a server runs on it or not, or with --api and --token over the API of \
a running server. A running server sees their changes to the database at once. With --config they read the \
server's settings file.";

/// A URL shortener that answers redirects at the limit of the machine.
#[derive(Debug, Parser)]
#[command(name = NAME, version, propagate_version = true, after_long_help = AFTERWORD)]
pub struct Cli {
    /// Print JSON for programs, as one line.
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer redirects, and serve the API on the admin listener.
    Serve(Box<serve::Args>),
    /// Make the running server take over what has changed: its program, these settings, or what SIGHUP reads again. No
    /// connection is lost.
    Reload(Reload),
    /// Add a link and print its short URL.
    Add(commands::add::Args),
    /// Print a link.
    Get(commands::get::Args),
    /// Print a page of links, or all links.
    List(commands::list::Args),
    /// Change links.
    Edit(commands::edit::Args),
    /// Delete links and their clicks.
    Rm(commands::rm::Args),
    /// Add links from a CSV or JSON file.
    Import(commands::import::Args),
    /// Write all links as CSV or JSON.
    Export(commands::export::Args),
    /// Print clicks by day, referrer and kind of agent.
    Stats(commands::stats::Args),
    /// Add, list, change and delete domains: further hosts for links.
    Domain(commands::domain::Args),
    /// Add, list and revoke the API's keys.
    #[command(alias = "token")]
    Key(commands::key::Args),
    /// Copy the database to a new file, while it is in use.
    Backup(commands::backup::Args),
    /// Copy everything into another, empty database: from a file to PostgreSQL, or back.
    Migrate(commands::migrate::Args),
    /// Check the integrity of the database.
    Check(commands::check::Args),
    /// Print shell completions.
    Completions(manual::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands.
    Man(manual::ManArgs),
}

/// The command line for manual pages and completions.
fn command() -> clap::Command {
    settings::command::<Cli>("links", "serve")
}

/// Parses the arguments and runs the requested command.
pub fn main() -> ExitCode {
    match run(settings::parse("links", "serve")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn run(cli: Cli) -> Result<(), Error> {
    let mut output = Output::new(cli.json);
    let done = match cli.command {
        Command::Serve(args) => return Ok(serve::run(*args, cli.json)?),
        Command::Reload(args) => return reload(&args),
        Command::Add(args) => commands::add::run(args, &mut output),
        Command::Get(args) => commands::get::run(args, &mut output),
        Command::List(args) => commands::list::run(args, &mut output),
        Command::Edit(args) => commands::edit::run(args, &mut output),
        Command::Rm(args) => commands::rm::run(args, &mut output),
        Command::Import(args) => commands::import::run(&args, &mut output),
        Command::Export(args) => commands::export::run(&args, &mut output),
        Command::Stats(args) => commands::stats::run(&args, &mut output),
        Command::Domain(args) => commands::domain::run(args, &mut output),
        Command::Key(args) => commands::key::run(args, &mut output),
        Command::Backup(args) => commands::backup::run(args, &mut output),
        Command::Migrate(args) => commands::migrate::run(args, &mut output),
        Command::Check(args) => commands::check::run(&args, &mut output),
        Command::Completions(args) => {
            args.print(command(), output.raw()).map_err(|source| Closed(source).into())
        }
        Command::Man(args) => args.print(command(), output.raw()).map_err(|source| match args.directory {
            None => Closed(source).into(),
            Some(path) => Error::File { path, source },
        }),
    };
    // What a command has printed before it fails is flushed too.
    let flushed = output.flush();
    done.and(flushed)
}

fn reload(reload: &Reload) -> Result<(), Error> {
    match handover::wanted::<Cli>("links", reload) {
        (Cli { command: Command::Serve(args), .. }, fingerprint) => {
            Ok(reload.run("links", &args.handover, fingerprint)?)
        }
        _ => Ok(()),
    }
}
