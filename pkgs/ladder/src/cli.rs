//! The command line.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use service::exit;

use crate::stage::{Options, Stage};
use crate::{Error, api, links};

/// Two articles' optimisation stages, one small server each.
#[derive(Debug, Parser)]
#[command(name = "ladder", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a stage of the JSON API.
    Api {
        /// Which: 1 to 8.
        #[arg(value_parser = clap::value_parser!(u8).range(1..=api::STAGES.len() as i64))]
        stage: u8,
        /// The URL of a PostgreSQL database that `ladder schema` has filled.
        #[arg(long, value_name = "URL")]
        database: String,
        /// Where to listen.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
    },
    /// Serve a stage of the URL shortener.
    Links {
        /// Which: 1 to 4.
        #[arg(value_parser = clap::value_parser!(u8).range(1..=links::STAGES.len() as i64))]
        stage: u8,
        /// An SQLite file, made and filled where it is missing.
        #[arg(long, value_name = "FILE")]
        database: String,
        /// Where to listen.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
    },
    /// Print the stages and what the articles claim for each.
    Stages,
    /// Print SQL that makes and fills the API's table, for psql.
    Schema,
    /// Print the kernel settings of the API's stage 7, for `sysctl -p -`.
    Settings,
}

/// Runs the command.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::fail(&error),
    }
}

fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Api { stage, database, listen } => serve(&api::STAGES, stage, database, listen)?,
        Command::Links { stage, database, listen } => serve(&links::STAGES, stage, database, listen)?,
        Command::Stages => {
            print_stages("api", &api::STAGES);
            print_stages("links", &links::STAGES);
        }
        Command::Schema => print!("{}", api::database::schema()),
        Command::Settings => {
            for (name, value) in api::s7_kernel::SETTINGS {
                println!("{name} = {value}");
            }
        }
    }
    Ok(())
}

fn serve(stages: &[Stage], stage: u8, database: String, listen: SocketAddr) -> Result<(), Error> {
    (stages[usize::from(stage) - 1].serve)(&Options { listen, database })
}

fn print_stages(ladder: &str, stages: &[Stage]) {
    for (Stage { name, claimed_qps, change, .. }, number) in stages.iter().zip(1..) {
        println!("{ladder} {number}  {name:<14} {claimed_qps:>7}/s claimed. {change}");
    }
}
