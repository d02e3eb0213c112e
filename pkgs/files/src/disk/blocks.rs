//! Memory of a fixed size for reads, divided into blocks that each have one owner.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The size of a block, in bytes: the least that can be taken.
pub const BLOCK_BYTES: usize = 128 * 1024;

/// Blocks in an extent: four, starting at a multiple of four, which are read into as one.
pub const EXTENT_BLOCKS: usize = 4;

/// A huge page of x86-64, and of arm64 with pages of 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

/// The fewest blocks a memory has.
pub const MIN_BLOCKS: usize = 8;

/// Memory of a fixed size, in blocks.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    length: usize,
    free: RefCell<FreeBlocks>,
}

/// A part of the memory with one owner: a block or an extent.
#[derive(Debug)]
pub struct Block {
    memory: Rc<Memory>,
    number: usize,
    count: usize,
}

/// The free blocks, one bit each. An extent is four bits within a word.
#[derive(Debug)]
struct FreeBlocks {
    words: Vec<u64>,
    count: usize,
}

impl Memory {
    /// Maps a memory of this many bytes, rounded to blocks, with at least [`MIN_BLOCKS`].
    ///
    /// # Errors
    /// When the kernel has none.
    pub fn new(bytes: usize) -> io::Result<Rc<Self>> {
        let blocks = (bytes / BLOCK_BYTES).max(MIN_BLOCKS);
        // Whole huge pages, since the kernel aligns large mappings to them.
        let length = (blocks * BLOCK_BYTES).next_multiple_of(if bytes > HUGE_BYTES { HUGE_BYTES } else { 1 });
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start: NonNull<u8> = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        // For the device, a block in contiguous memory is one segment, while single pages are 32. It also works without
        // huge pages, only slower.
        // SAFETY: this only advises the kernel about the new mapping, and changes no byte.
        let _ = unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxHugepage) };
        Ok(Rc::new(Self { start, length, free: RefCell::new(FreeBlocks::new(length / BLOCK_BYTES)) }))
    }

    /// Takes a block.
    pub fn block(self: &Rc<Self>) -> Option<Block> {
        let number = self.free.borrow_mut().take()?;
        Some(Block { memory: Rc::clone(self), number, count: 1 })
    }

    /// Takes an extent, if a whole one is free.
    pub fn extent(self: &Rc<Self>) -> Option<Block> {
        let number = self.free.borrow_mut().take_extent()?;
        Some(Block { memory: Rc::clone(self), number, count: EXTENT_BLOCKS })
    }

    /// How many blocks are free.
    pub fn free(&self) -> usize {
        self.free.borrow().count
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.length / BLOCK_BYTES
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the mapping from `new`. Its last block is gone, and so is the last read into it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Block {
    /// The address where it begins.
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: its number is below the mapping's number of blocks.
        unsafe { self.memory.start.add(self.number * BLOCK_BYTES) }
    }

    /// How many bytes it has.
    pub fn length(&self) -> usize {
        self.count * BLOCK_BYTES
    }

    /// How many blocks it has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Some of its bytes.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: a block is within the mapping, which lives as long, and its bytes are initialised, by the kernel if
        // by nobody else. Nobody writes to a block that the ring has given away.
        let all = unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.length()) };
        &all[range]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.memory.free.borrow_mut().give(self.number..self.number + self.count);
    }
}

impl FreeBlocks {
    fn new(blocks: usize) -> Self {
        let mut free = Self { words: vec![0; blocks.div_ceil(u64::BITS as usize)], count: 0 };
        free.give(0..blocks);
        free
    }

    /// The first bit of each extent in a word that is wholly free.
    fn extents(word: u64) -> u64 {
        word & (word >> 1) & (word >> 2) & (word >> 3) & 0x1111_1111_1111_1111
    }

    /// Takes a block, preferably from an extent that is only partly free.
    fn take(&mut self) -> Option<usize> {
        let partial = |word: u64| word & !(Self::extents(word) * 0b1111);
        let in_part = self.words.iter().position(|word| partial(*word) != 0);
        let index = in_part.or_else(|| self.words.iter().position(|word| *word != 0))?;
        let word = self.words[index];
        let bit = if in_part.is_some() { partial(word) } else { word }.trailing_zeros();
        self.words[index] &= !(1 << bit);
        self.count -= 1;
        Some(index * u64::BITS as usize + bit as usize)
    }

    fn take_extent(&mut self) -> Option<usize> {
        let index = self.words.iter().position(|word| Self::extents(*word) != 0)?;
        let bit = Self::extents(self.words[index]).trailing_zeros();
        self.words[index] &= !(0b1111 << bit);
        self.count -= EXTENT_BLOCKS;
        Some(index * u64::BITS as usize + bit as usize)
    }

    fn give(&mut self, blocks: Range<usize>) {
        self.count += blocks.len();
        for block in blocks {
            self.words[block / u64::BITS as usize] |= 1 << (block % u64::BITS as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_of_broken_extents_first_and_extents_only_whole() {
        let mut free = FreeBlocks::new(68);
        assert_eq!(free.take(), Some(0));
        assert_eq!((free.take_extent(), free.take(), free.count), (Some(4), Some(1), 62));
        // The last extent is in its own word.
        let extents: Vec<_> = std::iter::from_fn(|| free.take_extent()).collect();
        assert_eq!(extents, (8..68).step_by(4).collect::<Vec<_>>());
        assert_eq!((free.take(), free.take(), free.take(), free.count), (Some(2), Some(3), None, 0));
        free.give(65..66);
        free.give(0..4);
        assert_eq!((free.take(), free.take_extent(), free.count), (Some(65), Some(0), 0));
        free.give(64..67);
        assert_eq!(free.take_extent(), None, "one of it is taken");
    }

    #[test]
    fn what_is_dropped_is_free_again() {
        let memory = Memory::new(0).expect("memory");
        let (block, extent) = (memory.block().expect("a block"), memory.extent().expect("an extent"));
        assert_eq!((block.length(), extent.length()), (BLOCK_BYTES, EXTENT_BLOCKS * BLOCK_BYTES));
        assert_eq!((memory.free(), memory.extent().is_none()), (MIN_BLOCKS - 5, true));
        drop((block, extent));
        assert_eq!((memory.free(), memory.blocks()), (MIN_BLOCKS, MIN_BLOCKS));
        assert!(memory.extent().is_some());
    }
}
