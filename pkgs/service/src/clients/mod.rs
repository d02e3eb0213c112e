//! Limits of clients, and the hosts that they may name.

pub mod address_limits;
pub mod allowed_hosts;
pub mod limits;
pub mod rate_limit;
