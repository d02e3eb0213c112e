//! What takes lines: a file, or a collector.

use std::fmt;
use std::io;

/// What takes lines. It is shown as where they go.
pub(super) trait Output: fmt::Display + Send + 'static {
    /// Takes what is `left`, and takes off it what it took.
    fn write(&mut self, left: &mut &[u8]) -> io::Result<()>;

    /// Begins anew where it goes; whether there was anything to do.
    fn reopen(&mut self) -> io::Result<bool>;
}
