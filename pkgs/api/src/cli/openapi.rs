//! `openapi`: the API's description.

use std::io::Write;

use super::Error;
use crate::http::routes::describe;
use crate::json::object::Unknown;

/// Arguments of `openapi`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the described service does with unknown fields.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Unknown::Refuse)]
    pub unknown_fields: Unknown,
}

/// Prints the description.
pub(super) fn run(args: &Args) -> Result<(), Error> {
    let text = describe(args.unknown_fields).to_pretty_json().map_err(std::io::Error::other)?;
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
