//! The interface of a stream's writer.

use std::fmt::Debug;
use std::time::Duration;

use rustix::io::Errno;

use crate::site::root;

/// Memory for the names of a large directory, in bytes. At least half of it is of use: a million names of 7 bytes take 8
/// to 15 passes.
pub const MAX_NAME_BYTES: usize = 6 << 20;

/// How long a stream waits for a file descriptor.
pub const SCARCE_FOR: Duration = Duration::from_secs(10);

/// Why a stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be opened.
    #[error(transparent)]
    Open(#[from] root::Error),
    /// A file or directory cannot be read.
    #[error(transparent)]
    Read(#[from] Errno),
    /// A file is not what it was when the stream began.
    #[error("a file changed while it was read")]
    Changed,
    /// What is made of files cannot be written.
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

/// The memory for the names of a directory that has many.
pub trait NameMemory {
    /// Takes some for a pass, and says how many bytes. None where there is none just now.
    fn grow(&mut self) -> Option<usize>;

    /// The names of a pass take so many bytes; 0 once they are written.
    fn fits(&mut self, bytes: usize);
}

/// What came of a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A block.
    Block(Vec<u8>),
    /// Nothing more is to come.
    End,
    /// Nothing yet: it is to go on when others have had their turns.
    Again,
    /// There was no memory for the names of this directory, which take more, or no file descriptor to read it.
    Wait,
}

/// A body that is written as its client takes it: between two blocks it holds no thread.
pub trait BlockSource: Debug + Send {
    /// Writes the next block. It may wait for the disk.
    ///
    /// # Errors
    /// [`Error`]; what was given until then is not the whole.
    fn step(&mut self, memory: &mut dyn NameMemory) -> Result<Step, Error>;

    /// Gives back what it has of the memory for names.
    fn release_memory(&mut self) {}

    /// What it is about, below the root, for logs.
    fn path(&self) -> &[u8];
}

/// A block as a chunk (RFC 9112, section 7.1), and with `end` the last chunk behind it.
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
