//! A plan in one line, and its explanation.

use super::PlacementPlan;
use super::device::Device;
use super::plan::{Placement, Plan};
use super::policy::Policy;
use super::setting::Subject;
use crate::cpus::Cpus;
use crate::topology::Topology;

/// `eth0: ena at 0000:00:05.0, node 0, 8 of 16 channels, 9 vectors; policy spread on CPUs 0-15`
pub fn headline(device: &Device, plan: &Plan) -> String {
    let mut text = format!("{}: {} at {}", device.interface, device.driver, device.device);
    if let Some(node) = device.node {
        text.push_str(&format!(", node {node}"));
    }
    text.push_str(&match device.channels {
        Some(channels) if channels.max_combined > 0 => {
            format!(", {} of {} channels", channels.combined, channels.max_combined)
        }
        _ => format!(", {} queues", device.queues.len()),
    });
    format!("{text}, {} vectors; policy {} on CPUs {}", device.vectors, plan.policy, plan.allowed)
}

/// The reasons for a plan, one sentence per line.
pub fn reasons(topology: &Topology, placed: &PlacementPlan) -> Vec<String> {
    let PlacementPlan { device, plan, settings, rss } = placed;
    let queues = plan.placements.len();
    let cores = topology.cores(&plan.allowed);
    let mut lines = Vec::new();
    lines.push(match &plan.policy {
        Policy::Spread => {
            "Policy spread: every CPU may serve queues, those near the interface first.".to_owned()
        }
        Policy::Local => match device.node {
            Some(node) => format!("Policy local: the interface is on NUMA node {node}, so are its CPUs."),
            None => {
                "Policy local: the firmware tells no NUMA node of the interface, so all CPUs count as near."
                    .to_owned()
            }
        },
        Policy::Pin(_) => "Policy pin: queues take the named CPUs in the order they are named.".to_owned(),
        Policy::Reserve(cpus) => {
            format!("Policy reserve: {cpus} are kept for services; cores they share come after free ones.")
        }
    });
    if !topology.isolated.is_empty() && !matches!(plan.policy, Policy::Pin(_)) {
        lines.push(format!("CPUs {} are isolated, so they serve nothing.", topology.isolated));
    }
    lines.push(if queues <= cores {
        format!("{queues} queues on {cores} cores: each has a core to itself before any sibling serves one.")
    } else if queues <= plan.allowed.len() {
        format!("{queues} queues on {cores} cores: siblings serve what is left once every core has one.")
    } else {
        let cpus = plan.allowed.len();
        format!("{queues} queues on {cpus} CPUs: they are dealt out in turn, none has two more than another.")
    });
    let steered = |placement: &Placement| !placement.rps.is_empty();
    lines.push(if plan.placements.iter().any(steered) {
        "RPS: there are fewer queues than CPUs, so each queue hands packets on to its share of them, its core's \
         siblings first."
            .to_owned()
    } else {
        "RPS is off: packets stay where their interrupt was, which is cheapest while every CPU has a queue."
            .to_owned()
    });
    lines.push(
        "XPS: every CPU sends through one queue near it, so that no two queues contend for a lock, and its \
         completions come back to a cache that knows the packet."
            .to_owned(),
    );
    match rss {
        Some(rss) if rss.holds() => {
            lines.push("RSS: every queue the table may name has as many entries as any other.".to_owned())
        }
        Some(_) => lines.push(
            "RSS: the table is uneven, so one queue takes more packets; it is dealt out anew.".to_owned(),
        ),
        None => {}
    }
    let alone = device.queues.iter().filter(|queue| queue.interrupts.is_empty()).count();
    if alone > 0 {
        lines.push(format!("{alone} queues have no interrupt of their own: nothing can be moved for them."));
    }
    for setting in settings.iter().filter(|setting| !setting.holds()) {
        let name = match &setting.subject {
            Subject::Irq { action, .. } => format!(" ({action})"),
            Subject::Rps | Subject::Xps => String::new(),
        };
        let none = |cpus: &Cpus| if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() };
        lines.push(format!("{}{name}: {} → {}", setting.path, none(&setting.now), none(&setting.wanted)));
    }
    lines
}
