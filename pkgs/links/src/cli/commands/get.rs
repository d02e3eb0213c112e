//! `get`: shows a link.

use crate::cli::backend::BackendArgs;
use crate::cli::database::IfMissing;
use crate::cli::policy::{PolicyArgs, PublicArgs};
use crate::cli::{Error, Output, shown};

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which link.
    pub code: String,

    /// Its domain; the default one if absent or "default".
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,

    /// Where.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// What its short URL begins with.
    #[command(flatten)]
    pub public: PublicArgs,
}

/// Prints a link.
pub fn run(args: Args, output: &mut Output) -> Result<(), Error> {
    let policy = PolicyArgs { public: args.public, ..PolicyArgs::default() };
    let link = args.backend.open(&policy, IfMissing::Refuse)?.get(args.domain.as_deref(), &args.code)?;
    output.show(&link, shown::print)
}
