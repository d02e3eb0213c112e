//! The interface of what writes a stream.

use std::fmt::Debug;
use std::time::Duration;

use rustix::io::Errno;

use crate::site::root;

/// Memory for the names of a large directory, in bytes. At least half of it is used: a million names of 7 bytes take 8
/// to 15 passes.
pub const MAX_NAME_BYTES: usize = 6 << 20;

/// How long a stream waits for a file descriptor.
pub const SCARCE_FOR: Duration = Duration::from_secs(10);

/// Why a stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file or directory can't be opened.
    #[error(transparent)]
    Open(#[from] root::Error),
    /// A file or directory can't be read.
    #[error(transparent)]
    Read(#[from] Errno),
    /// A file has changed since the stream began.
    #[error("a file changed while it was read")]
    Changed,
    /// Compressed data can't be written.
    #[error("an encoder failed")]
    Encoder,
    /// Its writer panicked.
    #[error("a panic, which is logged")]
    Panicked,
}

impl Error {
    /// Whether there may be file descriptors for it later.
    pub fn is_scarcity(&self) -> bool {
        matches!(self, Self::Open(root::Error::Exhausted) | Self::Read(Errno::MFILE | Errno::NFILE))
    }
}

/// The memory for the names of a large directory.
pub trait NameMemory {
    /// Takes memory for a pass, and returns how many bytes; none if there is none at the moment.
    fn grow(&mut self) -> Option<usize>;

    /// The names of a pass take this many bytes; 0 once they are written.
    fn fits(&mut self, bytes: usize);
}

/// The result of a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A block.
    Block(Vec<u8>),
    /// There is nothing more.
    End,
    /// Nothing yet: it should continue once others have had their turns.
    Again,
    /// There was no memory for the many names of this directory, or no file descriptor to read it.
    Wait,
}

/// A body that is written at its client's pace: between two blocks it occupies no thread.
pub trait BlockSource: Debug + Send {
    /// Writes the next block. It may wait for the disk.
    ///
    /// # Errors
    /// [`Error`]; what was given until then is incomplete.
    fn step(&mut self, memory: &mut dyn NameMemory) -> Result<Step, Error>;

    /// Gives back its memory for names.
    fn release_memory(&mut self) {}

    /// Its path below the root, for logs.
    fn path(&self) -> &[u8];
}

/// A block as a chunk (RFC 9112, section 7.1), followed by the last chunk with `end`.
pub fn chunk(block: &[u8], end: bool) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(block.len() + 32);
    if !block.is_empty() {
        chunk.extend_from_slice(format!("{:x}\r\n", block.len()).as_bytes());
        chunk.extend_from_slice(block);
        chunk.extend_from_slice(b"\r\n");
    }
    if end {
        chunk.extend_from_slice(b"0\r\n\r\n");
    }
    chunk
}
