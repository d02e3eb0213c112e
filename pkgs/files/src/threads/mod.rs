//! Threads for work that a worker must not wait for.
//!
//! - [`background`]: starts them so that they leave the CPU to workers.
//! - [`pool`]: a bounded queue of jobs, and threads that start when it is first used.
//! - [`health`]: whether the threads are alive.
//! - [`interest`]: whether somebody still waits for a result.
//! - [`queue`]: passes jobs to threads.

// sched_setscheduler(2) has no safe binding.
#[allow(unsafe_code)]
pub mod background;
pub mod health;
pub mod interest;
pub mod pool;
pub mod queue;
