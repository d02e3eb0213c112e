//! Packets that a CPU dropped or processed too slowly, before any protocol saw them.

use std::time::Duration;

use super::severity;
use crate::doctor::sample::share;
use crate::doctor::{Finding, Rule, RuleContext, Severity};

/// Dropped packets.
pub const DROPPED: Rule = Rule {
    name: "softnet-drops",
    about: "no CPU drops packets because its queue for them is full",
    cost: "packets that arrived are lost, and clients send them again a fifth of a second later",
    source: "Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog; net/core/net-procfs.c",
    compares: None,
    check: dropped,
};

/// Packets that a CPU left for its next run.
pub const SQUEEZED: Rule = Rule {
    name: "time-squeeze",
    about: "no CPU runs out of its budget for packets while more wait",
    cost: "packets wait for the next round of a CPU that is busy with packets all the time",
    source: "Documentation/admin-guide/sysctl/net.rst, netdev_budget_usecs",
    compares: None,
    check: squeezed,
};

/// How long a CPU may process packets at a time by default (`netdev_budget_usecs`).
const BUDGET: Duration = Duration::from_millis(2);

fn dropped(context: &RuleContext<'_>) -> Vec<Finding> {
    let finding = |cpu: String| {
        let lost = context.interval.grew(&format!("softnet/{cpu}/dropped"));
        let taken = context.interval.grew(&format!("softnet/{cpu}/processed"));
        let share = share(lost, taken);
        let finding =
            Finding::symptom(format!("cpu {cpu}"), format!("{lost} packets dropped, {taken} taken"));
        let finding = finding.severity(severity(share)).effect(share);
        let remedy = "sysctl -w net.core.netdev_max_backlog=16384  # and linerate nic plan, whether RPS sends it too much";
        (lost > 0).then(|| finding.remedy(remedy))
    };
    context.interval.members("softnet/").into_iter().filter_map(finding).collect()
}

/// Each count is one exhausted time budget. The share is the part of the interval that the CPU spent in them.
fn squeezed(context: &RuleContext<'_>) -> Vec<Finding> {
    let set = context.system.read("/proc/sys/net/core/netdev_budget_usecs").ok();
    let budget = set.and_then(|text| text.trim().parse().ok()).map_or(BUDGET, Duration::from_micros);
    let finding = |cpu: String| {
        let times = context.interval.grew(&format!("softnet/{cpu}/time_squeeze"));
        let share = times as f64 * budget.as_secs_f64() / context.interval.seconds.max(f64::EPSILON);
        let finding = Finding::symptom(format!("cpu {cpu}"), format!("{times} times out of budget"));
        // 10 % of a core; less is only a burst.
        let severity = if share >= 0.1 { Severity::Warning } else { Severity::Notice };
        let remedy = "sysctl -w net.core.netdev_budget=600  # and linerate nic plan, whether one CPU serves several \
                      queues";
        (times > 0).then(|| finding.severity(severity).effect(share).remedy(remedy))
    };
    context.interval.members("softnet/").into_iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::symptoms;

    /// Packets, drops and squeezes of CPU 1.
    fn machine(later: [u64; 3]) -> String {
        let line = |[taken, lost, squeezed]: [u64; 3]| {
            let zeros = "00000000 ".repeat(9);
            format!("/proc/net/softnet_stat:\n|{taken:08x} {lost:08x} {squeezed:08x} {zeros}00000001\n")
        };
        format!("{}later\n{}", line([1000, 5, 5]), line(later))
    }

    #[test]
    fn drops_weigh_by_their_share_of_packets() {
        let found = |later| symptoms(&DROPPED, &machine(later), 1.0);
        assert!(found([2000, 5, 5]).is_empty());
        let few = found([1_001_000, 6, 5]);
        assert_eq!((few[0].severity, few[0].subject.as_str()), (Severity::Notice, "cpu 1"));
        let many = found([1999, 6, 5]);
        assert_eq!((many[0].severity, many[0].effect), (Severity::Warning, Some(0.001)));
    }

    #[test]
    fn squeezes_weigh_by_the_time_they_took() {
        let found = |later| symptoms(&SQUEEZED, &machine(later), 1.0);
        assert!(found([2000, 5, 5]).is_empty());
        assert_eq!(found([2000, 5, 6])[0].severity, Severity::Notice);
        let busy = found([2000, 5, 105]);
        assert_eq!((busy[0].severity, busy[0].effect), (Severity::Warning, Some(0.2)));
    }
}
