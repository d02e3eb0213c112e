//! Errors of commands, with their exit codes.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use service::exit::{self, FAILURE, USAGE};
use service::handover::ReloadError;
use service::output::Closed;

use super::{api, serve_error};
use crate::store;
use crate::transfer::{Cause, ImportError};

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the server.
    #[error(transparent)]
    Serve(#[from] serve_error::Error),
    /// An error of a reload of the running server.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A database cannot be used.
    #[error("{}: {source}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// The reason.
        source: store::Error,
    },
    /// The backup's file exists already.
    #[error("{}: there is a file already, and a backup replaces none: name a new one", .0.display())]
    BackupExists(PathBuf),
    /// There is a token but no API.
    #[error("a token (--token, LINERATE_LINKS_TOKEN) is for an API: say by --api where that is")]
    NoApi,
    /// An error of the API.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// There is no database, and this command does not create one.
    #[error("there is no database at {}; --database names another", .0.display())]
    NoDatabase(PathBuf),
    /// A file or directory cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Standard output is closed or full.
    #[error(transparent)]
    Output(#[from] Closed),
    /// Standard input cannot be read.
    #[error("standard input: {0}")]
    Input(#[source] io::Error),
    /// An edit changes nothing.
    #[error("nothing to change: give {0}, or another flag of --help")]
    NothingToChange(&'static str),
    /// The file's name does not tell its format.
    #[error("the format of {0:?} is not known: give --format csv or --format json")]
    UnknownFormat(String),
    /// An import broke off.
    #[error("after {} rows: {}", rows(.0), .0.cause)]
    Import(#[from] ImportError),
    /// Some of many items failed; each was reported.
    #[error("{failed} of {total} failed")]
    Some {
        /// How many failed.
        failed: u64,
        /// How many there were.
        total: u64,
    },
    /// The database is damaged; the findings were printed.
    #[error("the database is damaged: {0} problems")]
    Damaged(usize),
}

/// The exit code for an error of a named file.
fn of_file(error: &io::Error) -> u8 {
    use io::ErrorKind::{AlreadyExists, InvalidData, IsADirectory, NotADirectory, NotFound};
    match error.kind() {
        AlreadyExists | InvalidData | IsADirectory | NotADirectory | NotFound => USAGE,
        _ => FAILURE,
    }
}

/// The exit code for an error of the store.
fn of_store(error: &store::Error) -> u8 {
    use store::Error::{
        Code, Directory, Field, Foreign, Host, NoDomain, NoToken, NotADatabase, NotEmpty, NotFound,
        OnlyFiles, Target, TooNew,
    };
    match error {
        Code(_)
        | Directory
        | Field { .. }
        | Foreign
        | Host(_)
        | NoDomain(_)
        | NoToken(_)
        | NotADatabase
        | NotEmpty(_)
        | NotFound(_)
        | OnlyFiles
        | Target(_)
        | TooNew { .. } => USAGE,
        _ => FAILURE,
    }
}

/// How many rows were processed before the import broke off.
fn rows(error: &ImportError) -> u64 {
    let tally = &error.tally;
    tally.created + tally.replaced + tally.skipped + tally.failed
}

impl Error {
    /// The exit code: [`USAGE`] if other input could have avoided the error, otherwise [`FAILURE`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) | Self::Database { source: error, .. } => of_store(error),
            Self::Serve(serve_error::Error::Store { source, .. }) => of_store(source),
            Self::Serve(serve_error::Error::File { source, .. }) | Self::File { source, .. } => {
                of_file(source)
            }
            Self::Serve(
                serve_error::Error::Handover(_)
                | serve_error::Error::Migrates(_)
                | serve_error::Error::Log(_)
                | serve_error::Error::Jwt(_)
                | serve_error::Error::Listener(listener::Error::Tls(_)),
            )
            | Self::BackupExists(_)
            | Self::NoApi
            | Self::NoDatabase(_)
            | Self::NothingToChange(_)
            | Self::UnknownFormat(_) => USAGE,
            Self::Import(ImportError { cause: Cause::Read(_), .. }) => USAGE,
            Self::Reload(error) if error.is_usage() => USAGE,
            Self::Api(error) if error.is_bad_input() => USAGE,
            _ => FAILURE,
        }
    }

    /// Prints the error as one line on stderr, and returns its exit code. If the reader of standard output has closed
    /// it, the reader has seen enough, and that is no failure.
    pub fn report(&self) -> ExitCode {
        if matches!(self, Self::Output(Closed(error)) if error.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        eprintln!("error: {}", exit::chain(self));
        ExitCode::from(self.exit_code())
    }
}
