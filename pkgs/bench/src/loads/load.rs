//! The shape of a load, and its result, for every load generator.

use std::fmt;
use std::time::Duration;

/// The shape of the load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// wrk's threads.
    pub threads: usize,
    /// Kept-alive connections, distributed among the threads.
    pub connections: usize,
    /// How long, in whole seconds, the shortest unit for wrk.
    pub seconds: u64,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, connections, seconds } = self;
        write!(f, "wrk -t{threads} -c{connections} -d{seconds}s")
    }
}

/// What the client saw of one run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Requests answered.
    pub requests: u64,
    /// Wall-clock time for all of them.
    pub elapsed: Duration,
    /// The median latency. None if wrk's own figures don't add up, as happens with pipelined requests.
    pub p50: Option<Duration>,
    /// The 99th percentile.
    pub p99: Option<Duration>,
}
