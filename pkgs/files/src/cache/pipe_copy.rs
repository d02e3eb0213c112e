//! A copy of a file in pipes, for sending without encryption.
//!
//! sendfile(2) reads a file page by page, and gives a socket sixteen pages at a time. A copy that passed through a
//! [`PageCoalescer`] is in pieces of 32 KiB. A pipe with the usual sixteen slots holds half a MiB, which tee(2) and
//! splice(2) give a socket in one call; that takes half the time. These copies are in the kernel's memory, not in the
//! process's.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, pread};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use super::copy::CopyContent;
use super::page_coalescer::{PIECE_BYTES, PageCoalescer};

/// A file in pipes.
#[derive(Debug)]
pub struct PipeCopy {
    segments: Vec<Segment>,
}

/// The part of it in one pipe.
#[derive(Debug)]
pub struct Segment {
    /// The bytes of the file.
    pub range: Range<u64>,
    /// The end to tee from.
    pub pipe: OwnedFd,
}

impl CopyContent for PipeCopy {
    fn of(fd: &OwnedFd, size: u64) -> Result<Self, Errno> {
        fill(fd, size).map(|segments| Self { segments })
    }

    fn descriptors(&self) -> usize {
        self.segments.len()
    }
}

impl PipeCopy {
    /// The end to tee from and the length, if a single pipe has all of it.
    pub fn whole(&self) -> Option<(&OwnedFd, usize)> {
        let [segment] = &self.segments[..] else { return None };
        Some((&segment.pipe, usize::try_from(segment.range.end).ok()?))
    }

    /// The segment that starts at `at`.
    pub fn segment(&self, at: u64) -> Option<&Segment> {
        let index = self.segments.binary_search_by_key(&at, |segment| segment.range.start).ok()?;
        self.segments.get(index)
    }
}

/// Puts the first `size` bytes of a file into as many pipes as necessary.
fn fill(fd: &OwnedFd, size: u64) -> Result<Vec<Segment>, Errno> {
    let coalescer = PageCoalescer::new()?;
    // Only an empty pipe takes a piece from a socket unchanged. From another pipe, any pipe takes what that has.
    let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut segments = Vec::new();
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
                given += coalescer.put(&buffer[..count], count, &to)? as u64;
            }
            let there = (given - taken) as usize;
            match splice(&from, None, &write, None, there, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
                Ok(count) => taken += count as u64,
                // There are bytes, so it is the other pipe that is full.
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        if taken == start {
            return Err(Errno::NOBUFS);
        }
        segments.push(Segment { range: start..taken, pipe: read });
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::cache::copies::tests::{copy_of, file};

    #[test]
    fn segments_have_all_bytes_in_order() {
        for size in [1, 4095, 32 * 1024, 512 * 1024, 512 * 1024 + 1, 2_400_000] {
            let bytes: Vec<u8> = (0..size).map(|at: usize| (at * 31 + at / 257) as u8).collect();
            let (fd, identity) = file(&bytes);
            let copy = PipeCopy::of(&fd, identity.size).expect("a copy");
            let mut read = Vec::new();
            for segment in copy.segments {
                assert_eq!(segment.range.start, read.len() as u64, "{size}");
                std::fs::File::from(segment.pipe).read_to_end(&mut read).expect("bytes");
                assert_eq!(segment.range.end, read.len() as u64, "{size}");
            }
            assert!(read == bytes, "{size}");
        }
    }

    #[test]
    fn a_pipe_takes_as_many_pieces_as_it_has_places() {
        let copy = copy_of(&vec![1; 32 * PIECE_BYTES]);
        let ends = copy.content().segments.iter().map(|segment| segment.range.end).collect::<Vec<_>>();
        assert_eq!(ends, [16 * PIECE_BYTES as u64, 32 * PIECE_BYTES as u64]);
    }
}
