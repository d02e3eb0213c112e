//! Joins pages into pieces that each take one slot of a pipe.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::pipe::{SpliceFlags, splice};

/// The size that a Unix socket keeps in one piece: pages of the order that the kernel still allocates easily
/// (`UNIX_SKB_FRAGS_SZ`, net/unix/af_unix.c).
pub const PIECE_BYTES: usize = 32 * 1024;

/// A Unix socket, which joins what passes through it into one piece.
pub struct PageCoalescer {
    give: OwnedFd,
    take: OwnedFd,
}

impl PageCoalescer {
    /// A new one.
    ///
    /// # Errors
    /// Those of socketpair(2).
    pub fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (give, take) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok(Self { give, take })
    }

    /// Puts the first `length` of at most [`PIECE_BYTES`] bytes into a pipe. Returns how many it took: all if it is
    /// empty, since a pipe takes a page from a socket for each free slot.
    ///
    /// # Errors
    /// Those of send(2) and splice(2).
    pub fn put(&self, bytes: &[u8], length: usize, to: impl AsFd) -> Result<usize, Errno> {
        send(&self.give, bytes, SendFlags::NOSIGNAL)?;
        splice(&self.take, None, to, None, length, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)
    }
}
