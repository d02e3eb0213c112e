//! The description of a stage.

use std::net::SocketAddr;

use crate::Error;

/// A step of a ladder.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Its change, in a word or two.
    pub name: &'static str,
    /// Requests per second in the article after this step, on its own machine.
    pub claimed_qps: u32,
    /// How the change affects the work for a request, in a sentence. Whether it helps is up to the bench.
    pub change: &'static str,
    /// Serves until the process is told to end.
    pub serve: fn(&Options) -> Result<(), Error>,
}

/// The arguments of every stage.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The URL of a PostgreSQL database, or the path of an SQLite file.
    pub database: String,
}
