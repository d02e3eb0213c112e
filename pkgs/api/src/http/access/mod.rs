//! Access: keys, hosts, rates and origins.

pub mod cors;
pub(super) mod guard;
pub(super) mod hosts;
pub(super) mod rate;
