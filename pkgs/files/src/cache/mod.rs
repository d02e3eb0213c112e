//! What is kept between requests.
//!
//! - [`open_files`]: files that a worker keeps open, with their heads; [`file`](mod@file): one of them.
//! - [`watch`]: what inotify says of them; [`plain_directories`]: where no file has a coding beside it.
//! - [`copies`]: copies of files that are asked for often, for all workers; [`copy`]: one, [`pipe_copy`] in pipes or
//!   [`memory_copy`] on the heap; [`page_coalescer`]: how few places of a pipe it takes.
//! - [`responses`]: such copies with their heads, ready to be sent; [`pipes`]: what they are sent through.

pub mod copies;
pub mod copy;
pub mod file;
pub mod memory_copy;
pub mod open_files;
pub mod page_coalescer;
pub mod pipe_copy;
pub mod pipes;
pub mod plain_directories;
pub mod responses;
pub mod watch;
