//! A copy of a file on the heap, for encryption.
//!
//! Encryption has to read the data, which the kernel does by copying it: a tenth of HTTP/3's cost, a quarter of
//! HTTP/1.1's. A copy in memory is read directly.

use std::ops::Range;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::io::{Errno, pread};

use super::copy::CopyContent;

/// A file in memory.
#[derive(Debug)]
pub struct MemoryCopy {
    bytes: Bytes,
}

impl CopyContent for MemoryCopy {
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

    fn descriptors(&self) -> usize {
        0
    }
}

impl MemoryCopy {
    /// These bytes of the file.
    pub fn slice(&self, range: &Range<u64>) -> Option<Bytes> {
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        (start <= end && end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::copies::tests::file;

    #[test]
    fn memory_has_all_bytes_and_gives_what_there_is() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 3) as u8).collect();
        let (fd, identity) = file(&bytes);
        let copy = MemoryCopy::of(&fd, identity.size).expect("a copy");
        for range in [0..100_000, 99_999..100_000, 5..5, 40_000..70_000] {
            let part = &bytes[range.start as usize..range.end as usize];
            assert_eq!(copy.slice(&range).as_deref(), Some(part), "{range:?}");
        }
        #[expect(clippy::reversed_empty_ranges, reason = "none is to be had")]
        for range in [0..100_001, 7..5] {
            assert_eq!(copy.slice(&range), None, "{range:?}");
        }
        assert_eq!(MemoryCopy::of(&fd, identity.size + 1).err(), Some(Errno::BUSY), "it became shorter");
    }
}
