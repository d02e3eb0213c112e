//! `console`: one web page for the box.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Error, doctor};
use crate::console::LiveMachine;
use crate::system;

/// What its variables and its subcommand are called after.
pub const NAME: &str = "console";

/// Serves it until told to stop.
pub fn run(args: &console::Args, recorded: Option<PathBuf>) -> Result<(), Error> {
    // What cannot be read is said now, and not on a page.
    system::open(recorded.as_deref())?;
    if let Some(profile) = &args.profile {
        doctor::read(profile.clone())?;
    }
    let machine = LiveMachine::new(recorded, args.profile.clone()).helped_by(&args.helper);
    Ok(console::run(args, Arc::new(machine))?)
}
