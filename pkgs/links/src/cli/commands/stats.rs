//! `stats`: clicks by day and hour, referrer and kind of agent.

use jiff::civil::Date;

use crate::cli::backend::BackendArgs;
use crate::cli::database::IfMissing;
use crate::cli::policy::PolicyArgs;
use crate::cli::{Error, Output};
use crate::store::{Count, Older, Stats, TimeCount};

/// Arguments of `stats`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The link; all if absent.
    pub code: Option<String>,

    /// The link's domain, by default the default one. Without a link, the domain whose current links are summed.
    /// "default" is the one without a name.
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,

    /// From this day (UTC) on, such as 2030-01-31.
    #[arg(long, value_name = "DATE", default_value = "1970-01-01", hide_default_value = true)]
    pub from: Date,

    /// Up to this day (UTC).
    #[arg(long, value_name = "DATE", default_value = "9999-12-31", hide_default_value = true)]
    pub to: Date,

    /// Also by hour, as far as these days still have hours.
    #[arg(long)]
    pub hours: bool,

    /// Where.
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// Prints clicks.
pub fn run(args: &Args, output: &mut Output) -> Result<(), Error> {
    let backend = args.backend.open(&PolicyArgs::default(), IfMissing::Refuse)?;
    let stats =
        backend.stats(args.domain.as_deref(), args.code.as_deref(), args.from..=args.to, args.hours)?;
    output.show(&stats, print)
}

fn print(stats: &Stats, output: &mut Output) -> Result<(), Error> {
    output.line(format_args!("{} clicks", stats.clicks))?;
    if let Some(Older { from, to, clicks }) = &stats.older {
        output.line(format_args!(
            "{clicks} of them from {from} to {to}, days that are not told apart any more"
        ))?;
    }
    for (header, counts) in [("DAY", &stats.days), ("HOUR", &stats.hours)] {
        if !counts.is_empty() {
            output.line("")?;
            output.table([header, "CLICKS", "BY BOTS"], counts.iter().map(moment))?;
        }
    }
    for (header, counts) in
        [("REFERRER", &stats.referrers), ("AGENT", &stats.agents), ("COUNTRY", &stats.countries)]
    {
        if !counts.is_empty() {
            output.line("")?;
            output.table([header, "CLICKS"], counts.iter().map(row))?;
        }
    }
    Ok(())
}

fn moment(count: &TimeCount) -> [String; 3] {
    [count.name.clone(), count.clicks.to_string(), count.bots.to_string()]
}

fn row(count: &Count) -> [String; 2] {
    let name = if count.name.is_empty() { "-" } else { &count.name };
    [name.to_owned(), count.clicks.to_string()]
}
