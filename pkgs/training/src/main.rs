//! `linerate-training PROGRAMS PROFILES`: runs the instrumented services in PROGRAMS, which leave their profiles in
//! PROFILES.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use bench::entry;
use clap::Parser;
use training::Programs;

/// Runs services that were built with `-C profile-generate` on what visitors request most.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The directory of linerate-api, linerate-files and linerate-links.
    programs: PathBuf,

    /// The directory for their profiles.
    profiles: PathBuf,

    /// How long each load lasts, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

fn main() -> ExitCode {
    let Args { programs, profiles, seconds } = Args::parse();
    let programs = Programs { directory: programs, profiles, seconds };
    if let Err(error) = training::train(&programs) {
        return entry::failed(&error);
    }
    if let Some(name) = programs.untrained() {
        eprintln!("error: {name} has left no profile: it was not built with -C profile-generate");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
