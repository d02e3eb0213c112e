//! The rules, one a file.

mod cpu;
mod parameters;
mod sysctl;

use super::Rule;

/// All of them.
pub const RULES: &[Rule] = &[sysctl::RULE, parameters::RULE, cpu::GOVERNOR, cpu::ONLINE];
