//! Why a command fails, and the exit code that says so.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use service::exit::{self, FAILURE, USAGE};
use service::output::Closed;

use super::{api, serve};
use crate::store;
use crate::transfer::{Cause, ImportError};

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server.
    #[error(transparent)]
    Serve(#[from] serve::Error),
    /// The database.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The API.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// A command that only reads or changes was given a database that is not there.
    #[error("there is no database at {}", .0.display())]
    NoDatabase(PathBuf),
    /// A file or directory that cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Standard output is closed or full.
    #[error(transparent)]
    Output(#[from] Closed),
    /// Standard input cannot be read.
    #[error("standard input: {0}")]
    Input(#[source] io::Error),
    /// An edit without a change.
    #[error("nothing to change: see --help for what can be")]
    NothingToChange,
    /// A file name that does not tell the format.
    #[error("the format of {0:?} is not known: give --format csv or --format json")]
    UnknownFormat(String),
    /// An import that broke off.
    #[error("after {} rows: {}", rows(.0), .0.cause)]
    Import(#[from] ImportError),
    /// Some of many failed; each was told of.
    #[error("{failed} of {total} failed")]
    Some {
        /// How many failed.
        failed: u64,
        /// How many there were.
        total: u64,
    },
    /// The database is damaged; what was found was printed.
    #[error("the database is damaged: {0} problems")]
    Damaged(usize),
}

/// Rows dealt with before an import broke off.
fn rows(error: &ImportError) -> u64 {
    let tally = &error.tally;
    tally.created + tally.replaced + tally.skipped + tally.failed
}

impl Error {
    /// The exit code: [`USAGE`] where other input would have helped, [`FAILURE`] otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Store(store::Error::Code(_) | store::Error::Target(_) | store::Error::Field { .. })
            | Self::NothingToChange
            | Self::UnknownFormat(_) => USAGE,
            Self::Import(ImportError { cause: Cause::Read(_), .. }) => USAGE,
            Self::Api(error) if error.is_bad_input() => USAGE,
            _ => FAILURE,
        }
    }

    /// Prints the error in one line on stderr and answers with its exit code. A reader that has closed
    /// standard output has seen enough: that is no failure.
    pub fn report(&self) -> ExitCode {
        if matches!(self, Self::Output(Closed(error)) if error.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        eprintln!("error: {}", exit::chain(self));
        ExitCode::from(self.exit_code())
    }
}
