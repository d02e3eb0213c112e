//! The CPUs that serve each queue.

use super::interface::named;
use crate::doctor::{Finding, Rule, RuleContext};
use crate::nic::saved::{DIRECTORY, Saved};
use crate::nic::{self, PlacementRequest, apply, device};
use crate::topology::Topology;

/// The placement.
pub const PLACED: Rule = Rule {
    name: "placement",
    about: "interrupts, XPS, RPS and RSS are where the profile's policy puts them",
    cost: "some cores serve two queues while others serve none, and packets meet cold caches",
    source: "Documentation/networking/scaling.rst; Documentation/core-api/irq/irq-affinity.rst",
    compares: Some(|context| !wishes(context).is_empty()),
    check: placed,
};

/// irqbalance, which would move the interrupts.
pub const IRQBALANCE: Rule = Rule {
    name: "irqbalance",
    about: "nothing moves interrupts about that are placed",
    cost: "interrupts wander away from the cores whose caches know their packets",
    source: "irqbalance(1)",
    compares: Some(|context| !wishes(context).is_empty()),
    check: irqbalance,
};

/// Each interface with its wanted placement, and the settings that were saved before that placement was applied. The
/// placement comes from the profile. For an interface that isn't in the profile, it is the one that was last applied,
/// as for `linerate nic verify`.
pub(crate) fn wishes(context: &RuleContext<'_>) -> Vec<(String, PlacementRequest, Option<Saved>)> {
    let mut wishes: Vec<(String, PlacementRequest, Option<Saved>)> = Vec::new();
    let cards = context.profile.nic.values().filter_map(|nic| Some((nic, nic.placement.as_ref()?)));
    for (nic, placement) in cards {
        let wish = placement.wish(None);
        wishes.extend(named(context.system, nic).into_iter().map(|name| (name, wish.clone(), None)));
    }
    for interface in device::interfaces(context.system).unwrap_or_default() {
        // The saved settings also name the interrupts that the kernel manages itself, which only applying finds out.
        let saved = context.system.read(&format!("{DIRECTORY}/nic-{interface}.json")).ok();
        let saved = saved.and_then(|text| serde_json::from_str::<Saved>(&text).ok());
        match wishes.iter_mut().find(|(name, ..)| *name == interface) {
            Some((_, _, before)) => *before = saved,
            None => {
                let wish = saved.as_ref().and_then(|saved| saved.wish().ok());
                // The number of queues isn't part of their placement.
                wishes.extend(wish.map(|wish| (interface, PlacementRequest { queues: None, ..wish }, saved)));
            }
        }
    }
    wishes
}

fn placed(context: &RuleContext<'_>) -> Vec<Finding> {
    let Ok(topology) = Topology::read(context.system) else { return Vec::new() };
    let drifted = |(interface, wish, saved): (String, PlacementRequest, Option<Saved>)| {
        drifted(context, &topology, &interface, &wish, saved.as_ref())
    };
    wishes(context).into_iter().filter_map(drifted).collect()
}

fn drifted(
    context: &RuleContext<'_>,
    topology: &Topology,
    interface: &str,
    wish: &PlacementRequest,
    saved: Option<&Saved>,
) -> Option<Finding> {
    let policy = &wish.policy;
    let remedy = wish.command(interface);
    let placed = match nic::place(context.system, topology, interface, wish) {
        Ok(placed) => placed,
        Err(error) => {
            let finding = Finding::drift(interface, policy, error);
            return Some(finding.remedy(format!("linerate nic plan {interface}  # what could be instead")));
        }
    };
    let verified = apply::verify(context.system, &placed, saved);
    let uneven = verified.uneven.then(|| "uneven in its RSS table".to_owned());
    let others = match verified.drifted.len() {
        1 => "1 setting".to_owned(),
        others => format!("{others} settings"),
    };
    let first = verified.drifted.first().map(|setting| {
        let now = if setting.now.is_empty() { "none".to_owned() } else { setting.now.to_string() };
        format!("different in {others}, the first: {} is {now}, not {}", setting.path, setting.wanted)
    });
    let found: Vec<String> = first.into_iter().chain(uneven).collect();
    (!found.is_empty()).then(|| Finding::drift(interface, policy, found.join("; ")).remedy(remedy))
}

fn irqbalance(context: &RuleContext<'_>) -> Vec<Finding> {
    let pid = if wishes(context).is_empty() { None } else { nic::irqbalance(context.system) };
    let finding = |pid| {
        let finding = Finding::drift("irqbalance", "not running", format!("process {pid}"));
        finding.remedy("systemctl disable --now irqbalance")
    };
    pid.map(finding).into_iter().collect()
}
