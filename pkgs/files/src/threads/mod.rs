//! Threads for work that a worker must not wait for.
//!
//! - [`pool`]: a bounded queue of jobs, and threads that are started when it is first used.
//! - [`health`]: whether they go on.
//! - [`queue`]: how jobs come to threads.

pub mod health;
pub mod pool;
pub mod queue;
