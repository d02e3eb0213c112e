//! The shape of a load, and what came of it, whatever makes it.

use std::fmt;
use std::time::Duration;

/// The shape of the load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// wrk's threads.
    pub threads: usize,
    /// Connections kept alive, shared out among the threads.
    pub connections: usize,
    /// How long, in whole seconds: wrk takes no less.
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
    /// Wall-clock time they took together.
    pub elapsed: Duration,
    /// Half of all requests took no longer. None where wrk's own books do not balance, as happens to it with
    /// pipelined requests.
    pub p50: Option<Duration>,
    /// 99 % of them took no longer.
    pub p99: Option<Duration>,
}
