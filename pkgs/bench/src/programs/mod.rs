//! Programs other than the one that is measured, and what they need.

pub mod gateway;
pub mod postgres;
pub mod server;
pub mod setup;
