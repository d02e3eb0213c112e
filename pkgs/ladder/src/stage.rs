//! What there is to know of a stage.

use std::net::SocketAddr;

use crate::Error;

/// A step of a ladder.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Its change, in a word or two.
    pub name: &'static str,
    /// Requests a second the article has after this step, on its own machine.
    pub claimed_qps: u32,
    /// What the change does to the work of a request, in a sentence. Whether it helps is for the bench to say.
    pub change: &'static str,
    /// Serves until the process is told to end.
    pub serve: fn(&Options) -> Result<(), Error>,
}

/// What every stage is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The URL of a PostgreSQL database, or the path of an SQLite file.
    pub database: String,
}
