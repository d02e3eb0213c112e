//! The workers' settings.

use std::time::Duration;

use service::descriptors::HighWater;
use service::proxies::Proxies;

use crate::transfer::engine::Engine;

/// The workers' settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How bytes get from files into sockets.
    pub engine: Engine,
    /// Each worker's memory for reads by io_uring; none if threads read.
    pub ring: Option<usize>,
    /// How many files each worker keeps open.
    pub open_files: usize,
    /// Each worker's memory for the bytes of small files.
    pub memory: usize,
    /// The longest file whose bytes are kept in memory.
    pub memory_max: u64,
    /// Memory for copies in pipes of frequently requested files, for all workers together.
    pub pipe_memory: u64,
    /// The same for copies from which TLS connections are encrypted.
    pub tls_memory: u64,
    /// Memory for codings made from files, for all workers together.
    pub variant_memory: u64,
    /// How long a file counts as what its name refers to.
    pub revalidate: Duration,
    /// The proxies through which clients connect.
    pub proxies: Proxies,
    /// The most connections of a worker; further ones are closed at once.
    pub connections: usize,
    /// The number of file descriptors at which accepting pauses.
    pub high_water: HighWater,
    /// A head must be complete this long after its first byte.
    pub head_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// How long a client may read nothing.
    pub write_timeout: Duration,
    /// How long running responses may take at shutdown.
    pub drain_timeout: Duration,
}
