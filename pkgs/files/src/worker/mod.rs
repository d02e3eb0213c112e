//! The state of every worker, for either listener.
//!
//! - [`context`]: the state from which a thread answers.
//! - [`shared`]: the state that all threads share; [`settings`]: their settings.
//! - [`completions`]: the results of other threads' work for a worker.

pub mod completions;
pub mod context;
pub mod settings;
pub mod shared;
