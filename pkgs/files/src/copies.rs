//! Copies of files that are asked for again and again: in pipes for what goes out as it is, in memory for what is
//! encrypted on its way.
//!
//! sendfile(2) takes a file page by page, and hands a socket sixteen pages at a time. A copy that has passed through
//! a Unix socket lies in pieces of 32 KiB, and a pipe of the common sixteen places holds half a mebibyte of it,
//! which tee(2) and splice(2) hand to a socket in one call: that takes half of the time. These copies are in the
//! kernel's memory, not in the process's.
//!
//! What is encrypted has to be read, which the kernel does by copying it: a tenth of what HTTP/3 costs, a quarter of what
//! HTTP/1.1 does. A copy in memory is read as it is.

use std::cell::RefCell;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Weak;

use bytes::Bytes;
use rustix::io::{Errno, pread};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use crate::shelf::{Content, FileCopy};
use crate::site::file::File;

/// What a Unix socket keeps in one piece: pages of the order the kernel still allocates readily
/// (`UNIX_SKB_FRAGS_SZ`, net/unix/af_unix.c).
pub const PIECE_BYTES: usize = 32 * 1024;

/// A file in pipes.
#[derive(Debug)]
pub struct Piped {
    parts: Vec<Part>,
}

/// What one pipe has of it.
#[derive(Debug)]
pub struct Part {
    /// Which bytes of the file.
    pub range: Range<u64>,
    /// The end to tee from.
    pub pipe: OwnedFd,
}

/// A file in memory.
#[derive(Debug)]
pub struct Loaded {
    bytes: Bytes,
}

impl Content for Piped {
    fn of(fd: &OwnedFd, size: u64) -> Result<Self, Errno> {
        fill(fd, size).map(|parts| Self { parts })
    }

    fn slot(file: &File) -> &RefCell<Weak<FileCopy<Self>>> {
        &file.piped
    }

    fn descriptors(&self) -> usize {
        self.parts.len()
    }
}

impl Piped {
    /// All of it, where one pipe has that: the end to tee from, and how many bytes.
    pub fn whole(&self) -> Option<(&OwnedFd, usize)> {
        let [part] = &self.parts[..] else { return None };
        Some((&part.pipe, usize::try_from(part.range.end).ok()?))
    }

    /// The part that begins at `at`.
    pub fn part(&self, at: u64) -> Option<&Part> {
        let index = self.parts.binary_search_by_key(&at, |part| part.range.start).ok()?;
        self.parts.get(index)
    }
}

impl Content for Loaded {
    fn of(fd: &OwnedFd, size: u64) -> Result<Self, Errno> {
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| Errno::FBIG)?];
        let mut at = 0;
        while at < bytes.len() {
            match pread(fd, &mut bytes[at..], at as u64)? {
                0 => return Err(Errno::BUSY),
                count => at += count,
            }
        }
        Ok(Self { bytes: bytes.into() })
    }

    fn slot(file: &File) -> &RefCell<Weak<FileCopy<Self>>> {
        &file.loaded
    }

    fn descriptors(&self) -> usize {
        0
    }
}

impl Loaded {
    /// These bytes of the file.
    pub fn slice(&self, range: &Range<u64>) -> Option<Bytes> {
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        (start <= end && end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }
}

/// A Unix socket, which makes one piece of what passes through it.
pub struct Press {
    give: OwnedFd,
    take: OwnedFd,
}

impl Press {
    /// A new one.
    ///
    /// # Errors
    /// Those of socketpair(2).
    pub fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (give, take) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok(Self { give, take })
    }

    /// Puts the first `length` of at most [`PIECE_BYTES`] into a pipe, and returns how many it took: all, where it is
    /// empty, for from a socket a pipe takes a page for each place that is free.
    ///
    /// # Errors
    /// Those of send(2) and splice(2).
    pub fn put(&self, bytes: &[u8], length: usize, to: impl AsFd) -> Result<usize, Errno> {
        send(&self.give, bytes, SendFlags::NOSIGNAL)?;
        splice(&self.take, None, to, None, length, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)
    }
}

/// Puts the first `size` bytes of a file into as many pipes as they need.
fn fill(fd: &OwnedFd, size: u64) -> Result<Vec<Part>, Errno> {
    let press = Press::new()?;
    // Only an empty pipe takes a piece as it is from a socket. From another pipe any takes what that has.
    let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut parts = Vec::new();
    let (mut given, mut taken) = (0, 0);
    while taken < size {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let start = taken;
        while taken < size {
            if given == taken {
                let wanted = usize::try_from(size - given).unwrap_or(usize::MAX).min(PIECE_BYTES);
                let count = pread(fd, &mut buffer[..wanted], given)?;
                if count == 0 {
                    return Err(Errno::BUSY);
                }
                given += press.put(&buffer[..count], count, &to)? as u64;
            }
            let there = (given - taken) as usize;
            match splice(&from, None, &write, None, there, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
                Ok(count) => taken += count as u64,
                // There are bytes: it is the other pipe that is full.
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        if taken == start {
            return Err(Errno::NOBUFS);
        }
        parts.push(Part { range: start..taken, pipe: read });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::shelf::tests::{copy_of, file};

    #[test]
    fn parts_have_all_bytes_in_order() {
        for size in [1, 4095, 32 * 1024, 512 * 1024, 512 * 1024 + 1, 2_400_000] {
            let bytes: Vec<u8> = (0..size).map(|at: usize| (at * 31 + at / 257) as u8).collect();
            let (fd, identity) = file(&bytes);
            let copy = Piped::of(&fd, identity.size).expect("a copy");
            let mut read = Vec::new();
            for part in copy.parts {
                assert_eq!(part.range.start, read.len() as u64, "{size}");
                std::fs::File::from(part.pipe).read_to_end(&mut read).expect("bytes");
                assert_eq!(part.range.end, read.len() as u64, "{size}");
            }
            assert!(read == bytes, "{size}");
        }
    }

    #[test]
    fn a_pipe_takes_as_many_pieces_as_it_has_places() {
        let copy = copy_of(&vec![1; 32 * PIECE_BYTES]);
        let ends = copy.content().parts.iter().map(|part| part.range.end).collect::<Vec<_>>();
        assert_eq!(ends, [16 * PIECE_BYTES as u64, 32 * PIECE_BYTES as u64]);
    }

    #[test]
    fn memory_has_all_bytes_and_gives_what_there_is() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 3) as u8).collect();
        let (fd, identity) = file(&bytes);
        let copy = Loaded::of(&fd, identity.size).expect("a copy");
        for range in [0..100_000, 99_999..100_000, 5..5, 40_000..70_000] {
            let part = &bytes[range.start as usize..range.end as usize];
            assert_eq!(copy.slice(&range).as_deref(), Some(part), "{range:?}");
        }
        #[expect(clippy::reversed_empty_ranges, reason = "none is to be had")]
        for range in [0..100_001, 7..5] {
            assert_eq!(copy.slice(&range), None, "{range:?}");
        }
        assert_eq!(Loaded::of(&fd, identity.size + 1).err(), Some(Errno::BUSY), "it became shorter");
    }
}
