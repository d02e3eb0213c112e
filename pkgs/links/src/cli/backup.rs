//! `backup`: the database into a new file, while it is in use.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::database::{DatabaseArgs, Missing};
use super::policy::PolicyArgs;
use super::{Error, Output, progress};

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file to create; one that is there is left alone.
    pub file: PathBuf,

    /// Of which database.
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// What was written, as programs get it.
#[derive(Debug, Serialize)]
struct Written {
    file: PathBuf,
    bytes: u64,
}

/// Copies the database.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    let Args { file, database } = args;
    let failed = |source| Error::File { path: file.clone(), source };
    if file.exists() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let store = database.open(&PolicyArgs::default(), Missing::Refuse)?;
    let bar = progress::pages();
    let copied = store.reader()?.backup(&file, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    copied?;
    let bytes = file.metadata().map_err(failed)?.len();
    output.show(&Written { file: file.clone(), bytes }, |written, output| {
        output.line(format_args!("{} ({} bytes)", written.file.display(), written.bytes))
    })
}
