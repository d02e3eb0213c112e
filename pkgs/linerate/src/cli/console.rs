//! `console`: one web page for the box.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Error, doctor};
use crate::console::LiveMachine;
use crate::system;

/// The name of its subcommand, which is also part of its environment variables.
pub const NAME: &str = "console";

/// Serves it until told to stop.
pub fn run(args: &console::Args, recorded: Option<PathBuf>) -> Result<(), Error> {
    // Report files that can't be read now, and not on a page later.
    system::open(recorded.as_deref())?;
    if let Some(profile) = &args.profile {
        doctor::read(profile.clone())?;
    }
    let machine = LiveMachine::new(recorded, args.profile.clone()).helped_by(&args.helper);
    Ok(console::run(args, Arc::new(machine))?)
}
