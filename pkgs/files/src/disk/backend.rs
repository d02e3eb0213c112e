//! What reads files that are not in memory: io_uring, or threads.

use clap::ValueEnum;

use super::ring::Ring;

/// What reads files that are not in memory, for the plain listener. What the process encrypts is read by threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiskBackend {
    /// io_uring where the kernel allows it, else threads, with a warning at start.
    Auto,
    /// io_uring(7), or no start: each worker has one, and reads around the page cache what is not asked for again.
    Uring,
    /// Four threads, into the page cache.
    Threads,
}

impl DiskBackend {
    /// Whether rings of so many bytes are to read, and if not why the kernel has none, where that was asked for.
    ///
    /// # Errors
    /// Why the kernel has none, where there has to be one.
    pub fn ring(self, memory: usize) -> std::io::Result<(Option<usize>, Option<std::io::Error>)> {
        match (self, self.is_by_ring().then(|| Ring::new(memory))) {
            (_, None) => Ok((None, None)),
            (_, Some(Ok(_))) => Ok((Some(memory), None)),
            (Self::Uring, Some(Err(error))) => Err(error),
            (_, Some(Err(error))) => Ok((None, Some(error))),
        }
    }

    fn is_by_ring(self) -> bool {
        self != Self::Threads
    }
}
