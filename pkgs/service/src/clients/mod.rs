//! Who asks, by which name, and how much of it is taken.

pub mod address_limits;
pub mod allowed_hosts;
pub mod limits;
pub mod rate_limit;
