//! Why a command fails, and the exit code that says so.

use std::process::ExitCode;

use super::serve;
use crate::store;

/// The exit code of a command that could not do what was asked.
pub const FAILURE: u8 = 1;

/// The exit code of a command that was asked for something impossible; clap uses the same.
pub const USAGE: u8 = 2;

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server.
    #[error(transparent)]
    Serve(#[from] serve::Error),
    /// The database.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Error {
    /// The exit code: [`USAGE`] where other input would have helped, [`FAILURE`] otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Store(store::Error::Code(_) | store::Error::Target(_) | store::Error::Field { .. }) => {
                USAGE
            }
            Self::Store(_) | Self::Serve(_) => FAILURE,
        }
    }

    /// Prints the error in one line on stderr and answers with its exit code.
    pub fn report(&self) -> ExitCode {
        eprintln!("error: {self}");
        ExitCode::from(self.exit_code())
    }
}
