//! Reads that may wait for the disk.
//!
//! - [`threads`]: lookups, and other blocking work.
//! - [`ring`]: reads cold files with io_uring; [`blocks`]: the memory they are read into; [`ring_file`]: the files;
//!   [`backend`]: whether there is a ring.
//! - [`admission`]: which cold files the page cache should keep.
//! - [`resident`]: whether bytes are in the page cache.

pub mod admission;
pub mod backend;
// Memory that the kernel writes to is mapped, and divided.
#[allow(unsafe_code)]
pub mod blocks;
// cachestat(2) has no safe binding.
#[allow(unsafe_code)]
pub mod resident;
// The kernel writes to our memory while this thread continues.
#[allow(unsafe_code)]
pub mod ring;
pub mod ring_file;
pub mod threads;
