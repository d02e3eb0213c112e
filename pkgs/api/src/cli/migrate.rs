//! `migrate`: brings the schema up to date, which `serve` does as well.

use super::database::CommandArgs;
use super::{Error, Output};

/// Arguments of `migrate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where.
    #[command(flatten)]
    pub database: CommandArgs,
}

/// Brings the schema up to date.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let database = args.database.open()?;
    let mut output = Output::new(false);
    output.line(format_args!("{} is up to date", database.url()))?;
    output.flush()
}
