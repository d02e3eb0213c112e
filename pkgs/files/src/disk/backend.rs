//! What reads files that are not in memory: io_uring, or threads.

use clap::ValueEnum;

use super::ring::Ring;

/// What reads files that are not in memory.
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

    /// The name of what reads, where there are rings and where there are none: `auto` is either.
    pub fn name(by_ring: bool) -> String {
        let one = if by_ring { Self::Uring } else { Self::Threads };
        one.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn is_by_ring(self) -> bool {
        self != Self::Threads
    }
}
