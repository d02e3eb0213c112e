//! The rules, one file per kind of problem: first differences from the profile, then problems that don't depend on it.
// More than a dozen files: one for each rule.

mod accept;
mod certificate;
mod clock;
mod cloud;
mod conntrack;
mod cpu;
mod disk;
mod driver;
mod image;
mod interface;
mod parameters;
pub(crate) mod placement;
mod pressure;
mod service;
mod softnet;
mod sysctl;

use super::{Rule, Severity};

/// All rules.
pub const RULES: &[Rule] = &[
    service::RUNNING,
    service::READY,
    service::LISTENING,
    service::BACKLOG,
    service::LIMITS,
    service::CPUS,
    interface::PRESENT,
    interface::MTU,
    interface::CHANNELS,
    interface::RINGS,
    interface::OFFLOADS,
    interface::COALESCING,
    interface::QDISC,
    placement::PLACED,
    placement::IRQBALANCE,
    sysctl::RULE,
    parameters::RULE,
    cpu::GOVERNOR,
    cpu::ONLINE,
    disk::RULE,
    image::RULE,
    clock::RULE,
    certificate::RULE,
    softnet::DROPPED,
    softnet::SQUEEZED,
    accept::OVERFLOWS,
    accept::WAITING,
    accept::DATAGRAMS,
    driver::RING,
    cloud::ALLOWANCE,
    cloud::CREDITS,
    cloud::TRACKED,
    driver::HOT,
    conntrack::RULE,
    pressure::THROTTLED,
    pressure::MEMORY,
    pressure::HUGE_PAGES,
    pressure::STOLEN,
];

/// The severity for losing this share of the work. Clients notice a loss of one in a thousand.
fn severity(share: f64) -> Severity {
    if share >= 0.001 { Severity::Warning } else { Severity::Notice }
}
