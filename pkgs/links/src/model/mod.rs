//! Basic types: links, codes, targets, domains, times, agents and countries.

pub mod agent;
pub mod code;
pub mod country;
pub mod domains;
pub mod invalid;
pub mod link;
pub(crate) mod patch;
pub mod target;
pub mod when;
