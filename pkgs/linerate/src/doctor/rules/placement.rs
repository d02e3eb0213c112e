//! Where queues are served.

use super::interface::named;
use crate::doctor::{Finding, Look, Rule};
use crate::nic::plan::Steering;
use crate::nic::saved::{DIRECTORY, Saved};
use crate::nic::{self, Wish, apply};
use crate::profile::Placement;
use crate::topology::Topology;

/// The placement.
pub const PLACED: Rule = Rule {
    name: "placement",
    about: "interrupts, XPS, RPS and RSS are where the profile's policy puts them",
    cost: "some cores serve two queues while others serve none, and packets meet cold caches",
    source: "Documentation/networking/scaling.rst; Documentation/core-api/irq/irq-affinity.rst",
    check: placed,
};

/// What would move it.
pub const IRQBALANCE: Rule = Rule {
    name: "irqbalance",
    about: "nothing moves interrupts about that are placed",
    cost: "interrupts wander away from the cores whose caches know their packets",
    source: "irqbalance(1)",
    check: irqbalance,
};

fn placed(look: &Look<'_>) -> Vec<Finding> {
    let Ok(topology) = Topology::read(look.system) else { return Vec::new() };
    let cards = look.profile.nic.values().filter_map(|nic| Some((nic, nic.placement.as_ref()?)));
    let interfaces = cards
        .flat_map(|(nic, placement)| named(look.system, nic).into_iter().map(move |name| (name, placement)));
    interfaces.filter_map(|(interface, placement)| drifted(look, &topology, &interface, placement)).collect()
}

fn drifted(look: &Look<'_>, topology: &Topology, interface: &str, placement: &Placement) -> Option<Finding> {
    let Placement { policy, rps } = placement;
    let steering = if *rps { Steering::Auto } else { Steering::Off };
    let option = if *rps { "" } else { " --no-rps" };
    let remedy = format!("linerate nic apply {interface} --policy {policy}{option}");
    let wish = Wish { policy: policy.clone(), steering, queues: None };
    let placed = match nic::place(look.system, topology, interface, &wish) {
        Ok(placed) => placed,
        Err(error) => {
            let finding = Finding::drift(interface, policy, error);
            return Some(finding.remedy(format!("linerate nic plan {interface}  # what could be instead")));
        }
    };
    // Which interrupts the kernel keeps for itself is known from when they were placed.
    let saved = look.system.read(&format!("{DIRECTORY}/nic-{interface}.json")).ok();
    let saved = saved.and_then(|text| serde_json::from_str::<Saved>(&text).ok());
    let verified = apply::verify(look.system, &placed, saved.as_ref());
    let uneven = verified.uneven.then(|| "the RSS table is uneven".to_owned());
    let others = verified.drifted.len();
    let first = verified.drifted.first().map(|setting| {
        let now = if setting.now.is_empty() { "none".to_owned() } else { setting.now.to_string() };
        format!("{others} settings differ, the first: {} is {now}, not {}", setting.path, setting.wanted)
    });
    let found: Vec<String> = first.into_iter().chain(uneven).collect();
    (!found.is_empty()).then(|| Finding::drift(interface, policy, found.join("; ")).remedy(remedy))
}

fn irqbalance(look: &Look<'_>) -> Vec<Finding> {
    let wanted = look.profile.nic.values().any(|nic| nic.placement.is_some());
    let pid = if wanted { nic::irqbalance(look.system) } else { None };
    let finding = |pid| {
        let finding = Finding::drift("irqbalance", "not running", format!("process {pid}"));
        finding.remedy("systemctl disable --now irqbalance")
    };
    pid.map(finding).into_iter().collect()
}
