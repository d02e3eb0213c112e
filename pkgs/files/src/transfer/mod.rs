//! Sends a file's bytes to a socket.
//!
//! - [`engine`]: the ways to do so, and what the transfers of a worker share.
//! - [`file_transfer`]: a part of a file being sent.
//! - [`ring_stream`]: the same for what io_uring reads, some blocks ahead.

pub mod engine;
pub mod file_transfer;
pub mod ring_stream;
