//! Threads for work that a worker must not wait for.
//!
//! - [`pool`]: a bounded queue of jobs, and threads that start when it is first used.
//! - [`health`]: whether the threads are alive.
//! - [`queue`]: passes jobs to threads.

pub mod health;
pub mod pool;
pub mod queue;
