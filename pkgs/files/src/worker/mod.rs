//! The state of every worker, for either listener.
//!
//! - [`context`]: what a thread answers from.
//! - [`shared`]: what all of them share; [`settings`]: how they behave.
//! - [`completions`]: what other threads have done for one.

pub mod completions;
pub mod context;
pub mod settings;
pub mod shared;
