//! `seed`: fills a database with generated users.

use indicatif::{ProgressBar, ProgressStyle};

use super::database::CommandArgs;
use super::{Error, Output};
use crate::seed;

/// Arguments of `seed`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How many users.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub count: u64,

    /// Where.
    #[command(flatten)]
    pub database: CommandArgs,
}

/// Writes the users that do not exist yet.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let database = args.database.open()?;
    // The bar is hidden unless standard error is a terminal.
    let bar = ProgressBar::new(args.count);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} users {per_sec} {eta}") {
        bar.set_style(style);
    }
    let written =
        database.run(async |users| seed::seed(users, args.count, |seen| bar.set_position(seen)).await)?;
    bar.finish_and_clear();
    let mut output = Output::new(false);
    output.line(format_args!("{written} users written, {} were there", args.count - written))?;
    output.flush()
}
