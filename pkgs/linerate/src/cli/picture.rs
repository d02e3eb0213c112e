//! Draws queues on cores.

use crate::nic::Plan;
use crate::topology::{Cpu, Topology};

/// A line for each core, under its NUMA node:
///
/// ```text
/// node 0
///   core 0   cpu 0 ■ queue 0   cpu 8 ·
/// ```
///
/// `■` serves queues, `▫` receives packets from other CPUs, `·` may serve but doesn't, `✕` is excluded.
pub fn draw(topology: &Topology, plan: &Plan) -> Vec<String> {
    let digits = topology.cpus.last().map_or(1, |cpu| cpu.id.to_string().len());
    let mut cores: Vec<(usize, usize, Vec<&Cpu>)> = Vec::new();
    for cpu in &topology.cpus {
        match cores.iter_mut().find(|(_, core, _)| *core == cpu.core) {
            Some((_, _, threads)) => threads.push(cpu),
            None => cores.push((cpu.node, cpu.core, vec![cpu])),
        }
    }
    cores.sort_by_key(|(node, core, _)| (*node, *core));
    let cells: Vec<Vec<String>> = cores
        .iter()
        .map(|(_, _, threads)| {
            threads.iter().map(|cpu| format!("cpu {:digits$} {}", cpu.id, role(plan, cpu.id))).collect()
        })
        .collect();
    let width = cells.iter().flatten().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    let mut shown = None;
    for ((node, core, threads), cells) in cores.iter().zip(cells) {
        if shown != Some(node) {
            lines.push(format!("node {node}"));
            shown = Some(node);
        }
        let kind = if threads.iter().any(|cpu| cpu.efficient) { " (slow)" } else { "" };
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:width$}")).collect();
        lines.push(format!("  core {core:digits$}  {}{kind}", cells.join("  ")).trim_end().to_owned());
    }
    lines
}

/// The role of a CPU in a plan.
fn role(plan: &Plan, cpu: usize) -> String {
    let queues = plan.placements.iter().enumerate().filter(|(_, placement)| placement.cpu == cpu);
    let queues: Vec<String> = queues.map(|(queue, _)| queue.to_string()).collect();
    if !queues.is_empty() {
        return format!("■ queue {}", queues.join(","));
    }
    if let Some(from) = plan.placements.iter().position(|placement| placement.rps.contains(cpu)) {
        return format!("▫ from {from}");
    }
    if plan.allowed.contains(cpu) { "·".to_owned() } else { "✕".to_owned() }
}
