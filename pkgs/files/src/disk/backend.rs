//! How files are read that are not in memory: io_uring, or threads.

use clap::ValueEnum;

use super::ring::Ring;

/// What reads files that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiskBackend {
    /// io_uring if the kernel allows it, otherwise threads, with a warning at start.
    Auto,
    /// io_uring(7), or fail at start. Each worker has one, and reads around the page cache unless a file is requested
    /// again.
    Uring,
    /// Four threads, through the page cache.
    Threads,
}

impl DiskBackend {
    /// The size of a ring's memory, or none if threads read. If `auto` would have used rings, also returns the error
    /// that the kernel refused them with.
    ///
    /// # Errors
    /// The kernel's error, if there has to be a ring.
    pub fn ring(self, memory: usize) -> std::io::Result<(Option<usize>, Option<std::io::Error>)> {
        match (self, self.is_by_ring().then(|| Ring::new(memory))) {
            (_, None) => Ok((None, None)),
            (_, Some(Ok(_))) => Ok((Some(memory), None)),
            (Self::Uring, Some(Err(error))) => Err(error),
            (_, Some(Err(error))) => Ok((None, Some(error))),
        }
    }

    /// The name of the method in use, which `auto` may choose.
    pub fn name(by_ring: bool) -> String {
        let one = if by_ring { Self::Uring } else { Self::Threads };
        one.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn is_by_ring(self) -> bool {
        self != Self::Threads
    }
}
