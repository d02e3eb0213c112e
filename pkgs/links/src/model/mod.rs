//! The words the rest is written in: links, codes, targets, domains, instants and agents.

pub mod agent;
pub mod code;
pub mod domains;
pub mod invalid;
pub mod link;
pub(crate) mod patch;
pub mod target;
pub mod when;
