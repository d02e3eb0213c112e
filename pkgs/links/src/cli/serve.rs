//! `serve`: both listeners, from start to drain.

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Why the server did not start or end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {}

/// Runs the server until it is told to stop.
pub fn run(args: Args) -> Result<(), Error> {
    let Args {} = args;
    Ok(())
}
