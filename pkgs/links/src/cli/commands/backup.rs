//! `backup`: copies the database to a new file while it is in use.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::Serialize;

use crate::cli::database::DatabaseArgs;
use crate::cli::{Error, Output, progress};

/// The mode of a backup.
const MODE: u32 = 0o600;

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file to create. An existing file is not overwritten.
    pub file: PathBuf,

    /// Of which database.
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// The result, for programs.
#[derive(Debug, Serialize)]
struct Written {
    file: PathBuf,
    bytes: u64,
}

/// Copies the database.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    let Args { file, database } = args;
    let failed = |source| Error::File { path: file.clone(), source };
    let reader = database.read_a_file()?;
    // The backup is readable only for its owner, and never replaces another file.
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(&file).map_err(|error| {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Error::BackupExists(file.clone()),
            _ => failed(error),
        }
    })?;
    let bar = progress::pages();
    let copied = reader.backup(&file, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    if copied.is_err() {
        // An incomplete backup is useless.
        let _ = std::fs::remove_file(&file);
    }
    copied?;
    let bytes = file.metadata().map_err(failed)?.len();
    output.show(&Written { file: file.clone(), bytes }, |written, output| {
        output.line(format_args!("{} ({} bytes)", written.file.display(), written.bytes))
    })
}
