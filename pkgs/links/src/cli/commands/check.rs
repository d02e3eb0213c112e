//! `check`: checks the database's integrity.

use serde::Serialize;

use crate::cli::database::DatabaseArgs;
use crate::cli::{Error, Output};
use crate::store::Reader;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which database.
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// The result, for programs.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    links: u64,
    problems: Vec<String>,
}

/// Checks the database. Fails if it is damaged.
pub fn run(args: &Args, output: &mut Output) -> Result<(), Error> {
    let report =
        args.database.read_a_file().and_then(|reader| check(&reader)).or_else(|error| match error {
            // A database that is too damaged to be opened.
            Error::Database { source, .. } | Error::Store(source) if source.is_damage() => {
                Ok(Report { ok: false, links: 0, problems: vec![source.to_string()] })
            }
            error => Err(error),
        })?;
    output.show(&report, |report, output| {
        for problem in &report.problems {
            output.line(problem)?;
        }
        if report.ok { output.line(format_args!("sound: {} links", report.links)) } else { Ok(()) }
    })?;
    match report.problems.len() {
        0 => Ok(()),
        problems => Err(Error::Damaged(problems)),
    }
}

fn check(reader: &Reader) -> Result<Report, Error> {
    let problems = reader.check()?;
    // In a damaged database, counting may fail too, and the damage is already known.
    let links = if problems.is_empty() { reader.len()? } else { 0 };
    Ok(Report { ok: problems.is_empty(), links, problems })
}
