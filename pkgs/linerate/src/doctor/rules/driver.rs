//! Counters of network card drivers: packets that were lost for lack of room, and packets per queue.

use super::placement::wishes;
use super::severity;
use crate::doctor::sample::share;
use crate::doctor::{Finding, Rule, RuleContext, Severity};
use crate::nic::device;
use crate::system::System;

/// The rings.
pub const RING: Rule = Rule {
    name: "ring-drops",
    about: "no card drops packets because its ring is full or memory is short",
    cost: "packets that arrived are lost, and clients send them again a fifth of a second later",
    source: "drivers/net/ethernet: ixgbe_ethtool.c, igb_ethtool.c, ena_ethtool.c; drivers/net/virtio_net.c",
    compares: None,
    check: ring,
};

/// A single hot queue.
pub const HOT: Rule = Rule {
    name: "hot-queue",
    about: "no queue takes more than twice its share of packets",
    cost: "one core is at its limit while the others wait",
    source: "Documentation/networking/scaling.rst",
    compares: None,
    check: hot,
};

/// Counters of packets lost for lack of room, by the end of their names. ixgbe and igb: no descriptor was free
/// (`rx_no_buffer_count`, `rx_no_dma_resources`), or the card's own memory was full (`rx_missed_errors`). ENA:
/// `rx_overruns`, `rx_drops`. virtio: `drops` of a queue.
const LOST: [&str; 7] = [
    "rx_no_dma_resources",
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_overruns",
    "rx_drops",
    "_drops",
    "rx_dropped",
];

/// Counters of failed memory allocations, by the end of their names; the packet waits or is lost. ixgbe:
/// `alloc_rx_page_failed`, `alloc_rx_buff_failed`. igb and igc: `alloc_failed` of a queue, `rx_no_buffer_count`. ENA:
/// `page_alloc_fail`, `skb_alloc_fail`, and `empty_rx_ring`, which counts times when a ring couldn't be refilled.
const SHORT: [&str; 6] =
    ["alloc_failed", "alloc_fail", "page_failed", "buff_failed", "rx_no_buffer_count", "empty_rx_ring"];

/// Keeps a hundredth of memory free for allocations that can't wait (Amazon's ENA Linux best practices).
const MEMORY: &str = "sysctl -w vm.min_free_kbytes=$(awk '/MemTotal/ {print int($2 / 100)}' /proc/meminfo)";

/// Below this number of packets per second, queues aren't compared: a few connections use only a few queues.
const BUSY: f64 = 1000.0;

fn ring(context: &RuleContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for interface in context.interval.members("driver/") {
        let taken = context.interval.grew(&format!("link/{interface}/rx_packets"));
        let prefix = format!("driver/{interface}/");
        for (name, count) in context.interval.below(&prefix).filter(|(_, count)| *count > 0) {
            let ends = |names: &[&str]| names.iter().any(|end| name.ends_with(end));
            let share = share(count, taken);
            let sending = name.starts_with("tx") || name.contains("_tx_");
            let finding = || {
                let finding = Finding::symptom(&interface, format!("{name} {count}, {taken} packets taken"));
                finding.severity(severity(share)).effect(share)
            };
            if ends(&LOST) && !sending {
                findings.push(finding().remedy(longer(context.system, &interface)));
            } else if ends(&SHORT) {
                findings.push(finding().cost("the card found no memory at line rate").remedy(MEMORY));
            }
        }
    }
    findings
}

/// The command that doubles a receive ring.
fn longer(system: &dyn System, interface: &str) -> String {
    match system.rings(interface).ok().and_then(|rings| rings.rx) {
        Some(length) => format!(
            "ethtool -G {interface} rx {}  # it has {length}; ethtool -g {interface} tells how many it could",
            length.saturating_mul(2)
        ),
        None => format!("ethtool -g {interface}  # and -G for longer rings"),
    }
}

/// The queue that a counter of received packets belongs to: `queue_3_rx_cnt` (ENA), `rx_queue_3_packets` (ixgbe, igb,
/// virtio), `rx3_packets` (mlx5, virtio from 6.8).
fn queue_of(name: &str) -> Option<usize> {
    let ena = name.strip_prefix("queue_").and_then(|rest| rest.strip_suffix("_rx_cnt"));
    let intel = || name.strip_prefix("rx_queue_").and_then(|rest| rest.strip_suffix("_packets"));
    let other = || name.strip_prefix("rx").and_then(|rest| rest.strip_suffix("_packets"));
    ena.or_else(intel).or_else(other)?.parse().ok()
}

fn hot(context: &RuleContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for interface in context.interval.members("driver/") {
        let prefix = format!("driver/{interface}/");
        let counters = context.interval.below(&prefix);
        // ixgbe has counters for the most queues it could have; leave out those that aren't in use.
        let used = device::receiving(context.system, &interface);
        let queues: Vec<(usize, u64)> = counters
            .filter_map(|(name, count)| Some((queue_of(name)?, count)))
            .filter(|(queue, _)| *queue < used)
            .collect();
        let all: u64 = queues.iter().map(|(_, count)| count).sum();
        let Some((queue, most)) = queues.iter().max_by_key(|(_, count)| *count) else { continue };
        let fair = all as f64 / queues.len() as f64;
        let busy = all as f64 / context.interval.seconds.max(f64::EPSILON) >= BUSY;
        if queues.len() > 1 && busy && *most as f64 > 2.0 * fair {
            let share = *most as f64 / all as f64;
            let found = format!("takes {:.0} % of {all} packets, {} queues", share * 100.0, queues.len());
            let wish = wishes(context).into_iter().find(|(name, ..)| *name == interface);
            let apply = wish.map(|(_, wish, _)| wish).unwrap_or_default().command(&interface);
            let remedy = format!(
                "{apply}  # spreads RSS equally; where it is, few clients send most: ethtool -x {interface}"
            );
            let finding = Finding::symptom(format!("{interface} queue {queue}"), found);
            let excess = (*most as f64 - fair) / all as f64;
            findings.push(finding.severity(Severity::Warning).effect(excess).remedy(remedy));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{counting, symptoms};

    #[test]
    fn drivers_counters_are_known_by_their_names() {
        let cases = [
            ("rx_missed_errors=1", "rx_missed_errors=2", Some("rx_missed_errors 1, 9000 packets taken")),
            ("rx_queue_3_drops=0", "rx_queue_3_drops=9", Some("rx_queue_3_drops 9, 9000 packets taken")),
            (
                "queue_0_rx_page_alloc_fail=0",
                "queue_0_rx_page_alloc_fail=4",
                Some("queue_0_rx_page_alloc_fail 4, 9000 packets taken"),
            ),
            (
                "alloc_rx_page_failed=0",
                "alloc_rx_page_failed=2",
                Some("alloc_rx_page_failed 2, 9000 packets taken"),
            ),
            (
                "queue_1_rx_empty_rx_ring=1",
                "queue_1_rx_empty_rx_ring=2",
                Some("queue_1_rx_empty_rx_ring 1, 9000 packets taken"),
            ),
            ("rx_no_dma_resources=7", "rx_no_dma_resources=7", None),
            ("tx_drops=0", "tx_drops=9", None),
            ("rx_bytes=0", "rx_bytes=9", None),
        ];
        for (before, after, expected) in cases {
            let found = symptoms(&RING, &counting(before, after), 1.0);
            assert_eq!(found.first().map(|one| one.found.as_str()), expected, "{after}");
        }
    }

    #[test]
    fn a_queue_is_hot_where_all_are_busy_and_it_takes_twice_its_share() {
        let zero = "queue_0_rx_cnt=0 queue_1_rx_cnt=0 queue_2_rx_cnt=0 queue_3_rx_cnt=0";
        let cases = [
            ("queue_0_rx_cnt=9000 queue_1_rx_cnt=1000 queue_2_rx_cnt=1000 queue_3_rx_cnt=1000", true),
            ("queue_0_rx_cnt=3000 queue_1_rx_cnt=3000 queue_2_rx_cnt=3000 queue_3_rx_cnt=1000", false),
            ("queue_0_rx_cnt=900 queue_1_rx_cnt=0 queue_2_rx_cnt=0 queue_3_rx_cnt=0", false),
            // Four of eight queues are in use, with equal shares.
            (
                "rx_queue_0_packets=1000 rx_queue_1_packets=1000 rx_queue_2_packets=1000 rx_queue_3_packets=1000 \
                 rx_queue_4_packets=0 rx_queue_5_packets=0 rx_queue_6_packets=0 rx_queue_7_packets=0",
                false,
            ),
        ];
        for (after, hot) in cases {
            let found = symptoms(&HOT, &counting(zero, after), 1.0);
            assert_eq!(
                found.first().map(|one| one.subject.as_str()),
                hot.then_some("ens5 queue 0"),
                "{after}"
            );
        }
        for (name, queue) in [("queue_12_rx_cnt", 12), ("rx_queue_3_packets", 3), ("rx7_packets", 7)] {
            assert_eq!(queue_of(name), Some(queue));
        }
        assert_eq!((queue_of("rx_packets"), queue_of("rx_queue_3_bytes")), (None, None));
    }
}
