//! The command line: the server, and the links by hand.
//!
//! One subcommand a file in [`commands`], each with its `Args` and a `run`; [`serve`] is the server. Those that work on links take a
//! [`backend::Backend`], which is the database itself or the API of a running server.

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

/// What `--help` and the manual page end with.
const AFTERWORD: &str = "\
Examples:
  linerate-links serve --public-url https://go.example
      answers visits at port 8080 and the API at port 8081, both of this machine alone unless --listen says more
  linerate-links add https://example.com/ --code hello
  linerate-links list --search example
  linerate-links stats hello
  linerate-links export links.csv

Exit codes: 0 done, 1 not done, 2 asked for in a way that cannot be done. Errors are one line on standard \
error.

Commands work on the database, whether a server runs on it or not, or with --api and --token over the API of \
a running server. What they do to the database a running server sees at once. With --config they read the \
server's file of settings.";

/// A URL shortener that answers redirects at the limit of the machine.
#[derive(Debug, Parser)]
#[command(name = NAME, version, propagate_version = true, after_long_help = AFTERWORD)]
pub struct Cli {
    /// Print JSON, one line, for programs.
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer redirects, and the API on the admin listener.
    Serve(Box<serve::Args>),
    /// Have the server that runs take over what has changed: its program, these settings, or what SIGHUP reads again. No
    /// connection is lost.
    Reload(Reload),
    /// Add a link and print its short URL.
    Add(commands::add::Args),
    /// Print a link.
    Get(commands::get::Args),
    /// Print links: a page of them, or all.
    List(commands::list::Args),
    /// Change a link.
    Edit(commands::edit::Args),
    /// Delete links and their clicks.
    Rm(commands::rm::Args),
    /// Add links from a CSV or JSON file.
    Import(commands::import::Args),
    /// Write all links as CSV or JSON.
    Export(commands::export::Args),
    /// Print clicks by day, referrer and kind of agent.
    Stats(commands::stats::Args),
    /// Add, list, change and delete domains: further hosts that links can be at.
    Domain(commands::domain::Args),
    /// Add, list and revoke the API's keys.
    #[command(alias = "token")]
    Key(commands::key::Args),
    /// Copy the database to a new file, while it is in use.
    Backup(commands::backup::Args),
    /// Copy everything into another database, an empty one: from a file to PostgreSQL, or back.
    Migrate(commands::migrate::Args),
    /// Check the integrity of the database.
    Check(commands::check::Args),
    /// Print the completions of a shell.
    Completions(manual::CompletionsArgs),
    /// Print the manual page, or write those of all commands.
    Man(manual::ManArgs),
}

/// The command line as manual pages and completions describe it.
fn command() -> clap::Command {
    settings::command::<Cli>("links", "serve")
}

/// Parses the arguments and runs what they ask for.
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
    // What was printed before a failure is printed all the same.
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
