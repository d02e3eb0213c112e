//! Which blocks of an object are in its file.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::BLOCK_BYTES;

/// One bit per block in the file. A bit is set once and never cleared.
#[derive(Debug)]
pub struct Blocks {
    words: Box<[AtomicU64]>,
    size: u64,
    missing: AtomicU32,
}

/// How many blocks an object of `size` bytes has; none if they can't be counted.
pub fn count(size: u64) -> Option<u32> {
    u32::try_from(size.div_ceil(BLOCK_BYTES)).ok()
}

/// The range of a block in an object of `size` bytes.
pub fn range(index: u32, size: u64) -> Range<u64> {
    let start = u64::from(index) * BLOCK_BYTES;
    start.min(size)..(start + BLOCK_BYTES).min(size)
}

/// The block that contains a byte.
pub fn index(at: u64) -> u32 {
    u32::try_from(at / BLOCK_BYTES).unwrap_or(u32::MAX)
}

impl Blocks {
    /// For an object of `size` bytes, without any blocks.
    pub fn none(size: u64) -> Self {
        let blocks = count(size).unwrap_or(u32::MAX);
        let words = (0..blocks.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect();
        Self { words, size, missing: AtomicU32::new(blocks) }
    }

    /// Whether a block is in the file.
    pub fn has(&self, index: u32) -> bool {
        let (word, bit) = place(index);
        // A thread that sees the bit also sees the bytes that were written before it.
        self.words.get(word).is_some_and(|word| word.load(Ordering::Acquire) & bit != 0)
    }

    /// Marks a block as present. Returns whether it was the last missing one.
    pub fn add(&self, index: u32) -> bool {
        let (word, bit) = place(index);
        let Some(word) = self.words.get(word) else { return false };
        let before = word.fetch_or(bit, Ordering::AcqRel);
        before & bit == 0 && self.missing.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether all blocks are in the file.
    pub fn is_whole(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// The end of the bytes that are in the file without a gap from the start of a range.
    pub fn available(&self, range: &Range<u64>) -> u64 {
        if self.is_whole() {
            return range.end;
        }
        let mut at = range.start;
        while at < range.end && self.has(index(at)) {
            at = self::range(index(at), self.size).end;
        }
        at.min(range.end)
    }
}

fn place(index: u32) -> (usize, u64) {
    ((index / u64::BITS) as usize, 1 << (index % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = BLOCK_BYTES;

    #[test]
    fn blocks_cover_an_object_and_no_more() {
        for (size, blocks, last) in [
            (0, 0, 0..0),
            (1, 1, 0..1),
            (MIB, 1, 0..MIB),
            (MIB + 1, 2, MIB..MIB + 1),
            (130 * MIB - 1, 130, 129 * MIB..130 * MIB - 1),
        ] {
            assert_eq!(count(size), Some(blocks), "{size}");
            assert_eq!(range(blocks.saturating_sub(1), size), last, "{size}");
        }
        assert_eq!(count(u64::MAX), None);
    }

    #[test]
    fn what_is_available_ends_at_the_first_block_that_is_missing() {
        let size = 100 * MIB + 5;
        let blocks = Blocks::none(size);
        assert_eq!(blocks.available(&(0..size)), 0);
        for index in [0, 1, 3, 64, 65] {
            assert!(!blocks.add(index));
            assert!(!blocks.add(index), "twice is once");
        }
        for (range, end) in [
            (0..size, 2 * MIB),
            (5..MIB, MIB),
            (MIB + 7..3 * MIB, 2 * MIB),
            (2 * MIB..size, 2 * MIB),
            (3 * MIB..3 * MIB + 1, 3 * MIB + 1),
            (64 * MIB..size, 66 * MIB),
            (size..size, size),
        ] {
            assert_eq!(blocks.available(&range), end, "{range:?}");
        }
    }

    #[test]
    fn the_last_one_that_was_missing_makes_it_whole_once() {
        let blocks = Blocks::none(70 * MIB);
        let last: Vec<u32> = (0..70).rev().chain(0..70).filter(|index| blocks.add(*index)).collect();
        assert_eq!(last, [0]);
        assert!(blocks.is_whole());
        assert!(Blocks::none(0).is_whole(), "what is empty is whole");
        assert!(!blocks.add(4000), "there is none");
    }
}
