//! How the workers behave.

use std::time::Duration;

use service::descriptors::HighWater;
use service::proxies::Proxies;

use crate::transfer::engine::Engine;

/// How the workers behave.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How bytes get from files into sockets.
    pub engine: Engine,
    /// Memory of each worker for what its io_uring reads; none where threads read.
    pub ring: Option<usize>,
    /// Files that each worker keeps open.
    pub open_files: usize,
    /// Memory of each worker for bytes of small files.
    pub memory: usize,
    /// The longest file whose bytes are kept in memory.
    pub memory_max: u64,
    /// Memory for copies in pipes of files that are asked for often, of all workers together.
    pub pipe_memory: u64,
    /// The same for copies that are encrypted from.
    pub tls_memory: u64,
    /// Memory for codings that are made of files, of all workers together.
    pub variant_memory: u64,
    /// How long a file counts as what its name stands for.
    pub revalidate: Duration,
    /// Which proxies are in front, by whom clients come.
    pub proxies: Proxies,
    /// Connections of one worker; further ones are closed at once.
    pub connections: usize,
    /// From how many file descriptors on accepting pauses.
    pub high_water: HighWater,
    /// A head must be complete this long after its first byte.
    pub head_timeout: Duration,
    /// A connection may be idle this long between requests.
    pub idle_timeout: Duration,
    /// A client may take nothing for this long.
    pub write_timeout: Duration,
    /// At shutdown, answers under way have this long.
    pub drain_timeout: Duration,
}
