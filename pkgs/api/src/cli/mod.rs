//! The command line.

pub mod database;
pub mod migrate;
pub mod seed;

use std::process::ExitCode;

/// Parses the arguments and runs what they ask for.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
