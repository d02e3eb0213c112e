//! Threads for what a worker may not wait for.
//!
//! - [`pool`]: a bounded queue of jobs, and threads that are started when it is first used.
//! - [`health`]: whether they go on.

pub mod health;
pub mod pool;
