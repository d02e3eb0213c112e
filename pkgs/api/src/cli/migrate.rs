//! `migrate`: migrates the schema, as `serve` also does.

use super::database::CommandArgs;
use super::{Error, Output};

/// Arguments of `migrate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where.
    #[command(flatten)]
    pub database: CommandArgs,
}

/// Migrates the schema.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let database = args.database.open()?;
    let mut output = Output::new(false);
    output.line(format_args!("{} is up to date", database.url()))?;
    output.flush()
}
