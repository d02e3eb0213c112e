//! State that is kept between requests.
//!
//! - [`open_files`]: files that a worker keeps open, with their heads; [`file`](mod@file): one of them;
//!   [`memory_budget`]: the memory for the bytes of small ones.
//! - [`watch`]: changes that inotify reports; [`plain_directories`]: directories without encoded files.
//! - [`copies`]: copies of frequently requested files, for all workers; [`copy`]: one copy, [`pipe_copy`] in pipes or
//!   [`memory_copy`] on the heap; [`page_coalescer`]: how it needs few slots of a pipe.
//! - [`responses`]: such copies with their heads, ready to send; [`pipes`]: the pipes for sending.

pub mod copies;
pub mod copy;
pub mod file;
pub mod memory_budget;
pub mod memory_copy;
pub mod open_files;
pub mod page_coalescer;
pub mod pipe_copy;
pub mod pipes;
pub mod plain_directories;
pub mod responses;
pub mod watch;
