//! The output of lines: a file, or a collector.

use std::fmt;
use std::io;

/// An output of lines. Its `Display` shows the destination.
pub(super) trait Output: fmt::Display + Send + 'static {
    /// Writes `left`, and removes from it what was written.
    fn write(&mut self, left: &mut &[u8]) -> io::Result<()>;

    /// Reopens the destination. Returns whether there was anything to do.
    fn reopen(&mut self) -> io::Result<bool>;
}
