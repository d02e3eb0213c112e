//! Who may ask, by which name, how often, and from where.

pub mod cors;
pub(super) mod guard;
pub(super) mod hosts;
pub(super) mod rate;
