//! Reads that may wait for the disk.
//!
//! - [`threads`]: lookups, and whatever else blocks.
//! - [`ring`]: reads of what is cold, by io_uring; [`blocks`]: into which memory; [`ring_file`]: of which files;
//!   [`backend`]: whether there is one.
//! - [`admission`]: which cold files the page cache is to have.
//! - [`resident`]: whether bytes are in the page cache.

pub mod admission;
pub mod backend;
// Memory that the kernel writes to is mapped, and divided.
#[allow(unsafe_code)]
pub mod blocks;
// cachestat(2) has no safe binding.
#[allow(unsafe_code)]
pub mod resident;
// The kernel writes to memory of ours while we do something else.
#[allow(unsafe_code)]
pub mod ring;
pub mod ring_file;
pub mod threads;
