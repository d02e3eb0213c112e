//! A cloud's limits for an instance, as the ENA driver counts them.

use super::severity;
use crate::doctor::sample::share;
use crate::doctor::{Finding, Rule, RuleContext, Severity};

/// Packets that exceeded an allowance.
pub const ALLOWANCE: Rule = Rule {
    name: "allowance",
    about: "the instance stays within what the cloud allows it",
    cost: "the hypervisor queues and drops packets, whatever this machine does",
    source: "Amazon EC2, network performance metrics of the ENA driver",
    compares: None,
    check: allowance,
};

/// Credits that were spent.
pub const CREDITS: Rule = Rule {
    name: "credits",
    about: "a card carries no more than the profile says that it may for good",
    cost: "beyond its baseline an instance spends credits, and once they are spent it is held at the baseline",
    source: "Amazon EC2, instance network bandwidth: network I/O credits",
    compares: Some(|context| context.profile.nic.values().any(|nic| nic.sustained_mbit.is_some())),
    check: credits,
};

/// How many tracked connections are left.
pub const TRACKED: Rule = Rule {
    name: "tracked",
    about: "security groups can track more connections for a minute at least",
    cost: "once none is left, packets of new connections are dropped",
    source: "Amazon EC2, conntrack_allowance_available of the ENA driver",
    compares: None,
    check: tracked,
};

/// ENA's counters of packets that exceeded an allowance, with the subject of each and advice. No setting of the machine
/// raises an allowance.
const EXCEEDED: [(&str, &str, &str); 5] = [
    ("bw_in_allowance_exceeded", "bandwidth in", "a larger instance, or fewer uploads"),
    ("bw_out_allowance_exceeded", "bandwidth out", "a larger instance, or smaller answers: compress, cache"),
    ("pps_allowance_exceeded", "packets a second", "a larger instance, or fewer packets: MTU 9001, GSO, GRO"),
    (
        "conntrack_allowance_exceeded",
        "connections tracked by security groups",
        "a group that allows all traffic both ways tracks nothing",
    ),
    (
        "linklocal_allowance_exceeded",
        "packets to DNS, metadata and time",
        "a resolver that caches, on this machine",
    ),
];

/// How long the remaining connections have to last at the current rate, in seconds.
const LASTS: f64 = 60.0;

fn allowance(context: &RuleContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for interface in context.interval.members("driver/") {
        let direction = |name: &str| context.interval.grew(&format!("link/{interface}/{name}"));
        let passed = direction("rx_packets") + direction("tx_packets");
        for (name, what, advice) in EXCEEDED {
            let count = context.interval.grew(&format!("driver/{interface}/{name}"));
            if count > 0 {
                let share = share(count, passed);
                let found = format!("{count} packets beyond: {what} ({name})");
                let finding = Finding::symptom(&interface, found).severity(severity(share)).effect(share);
                findings.push(finding.remedy(format!("ethtool -S {interface} | grep allowance  # {advice}")));
            }
        }
    }
    findings
}

fn credits(context: &RuleContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for nic in context.profile.nic.values() {
        let Some(sustained) = nic.sustained_mbit.filter(|sustained| *sustained > 0) else { continue };
        for interface in super::interface::named(context.system, nic) {
            for direction in ["rx", "tx"] {
                let bytes = context.interval.grew(&format!("link/{interface}/{direction}_bytes"));
                let mbit = bytes as f64 * 8.0 / 1e6 / context.interval.seconds.max(f64::EPSILON);
                let beyond = 1.0 - f64::from(sustained) / mbit;
                if beyond > 0.0 {
                    let subject = format!("{interface} {direction}");
                    let finding =
                        Finding::drift(subject, format!("at most {sustained}"), format!("{mbit:.0} Mbit/s"));
                    let remedy = format!("ethtool -S {interface} | grep bw_  # grows once credits are spent");
                    findings.push(finding.severity(Severity::Notice).effect(beyond).remedy(remedy));
                }
            }
        }
    }
    findings
}

fn tracked(context: &RuleContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for interface in context.interval.members("driver/") {
        let name = format!("driver/{interface}/conntrack_allowance_available");
        let Some((before, left)) = context.interval.ends(&name) else { continue };
        let taken = before.saturating_sub(left) as f64 / context.interval.seconds.max(f64::EPSILON);
        let lasts = left as f64 / taken;
        let enough = if left == 0 { before == 0 && !spent(context, &interface) } else { lasts >= LASTS };
        if enough {
            continue;
        }
        let found = match left {
            0 => "none left".to_owned(),
            _ => format!("{left} left, for {lasts:.0} s"),
        };
        let severity = if left == 0 { Severity::Critical } else { Severity::Warning };
        let advice = "a group that allows all traffic both ways tracks nothing";
        let remedy = format!("ethtool -S {interface} | grep conntrack  # {advice}");
        findings.push(Finding::symptom(&interface, found).severity(severity).remedy(remedy));
    }
    findings
}

/// Whether connections were refused. This distinguishes an exhausted instance from one that tracks nothing: both report
/// that none is left.
fn spent(context: &RuleContext<'_>, interface: &str) -> bool {
    context.interval.grew(&format!("driver/{interface}/conntrack_allowance_exceeded")) > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{counting, look, symptoms};

    #[test]
    fn what_the_cloud_held_back_is_found() {
        let machine = counting("pps_allowance_exceeded=5", "pps_allowance_exceeded=1005");
        let found = symptoms(&ALLOWANCE, &machine, 1.0);
        assert_eq!(found[0].found, "1000 packets beyond: packets a second (pps_allowance_exceeded)");
        assert_eq!((found[0].severity, found[0].effect), (Severity::Warning, Some(0.1)));
    }

    #[test]
    fn credits_are_spent_beyond_what_lasts() {
        // 8 Gbit within one second, or within two.
        let profile = r#"{"nic": {"front": {"driver": "ena", "sustained_mbit": 6250}}}"#;
        let found = |seconds| look(&CREDITS, &counting("a=0", "a=0"), profile, seconds);
        assert_eq!(
            (found(1.0)[0].subject.as_str(), found(1.0)[0].found.as_str()),
            ("ens5 tx", "8000 Mbit/s")
        );
        assert_eq!(found(1.0)[0].effect, Some(1.0 - 6250.0 / 8000.0));
        assert_eq!(found(2.0), []);
    }

    #[test]
    fn connections_that_can_be_tracked_have_to_last() {
        let name = "conntrack_allowance_available";
        let cases = [
            (format!("{name}=1000"), format!("{name}=1000"), None),
            (format!("{name}=1000"), format!("{name}=990"), None),
            (format!("{name}=1000"), format!("{name}=900"), Some("900 left, for 9 s")),
            (format!("{name}=1000"), format!("{name}=0"), Some("none left")),
            // Some have become free again.
            (format!("{name}=900"), format!("{name}=1000"), None),
            // Without tracking there is no allowance either.
            (format!("{name}=0"), format!("{name}=0"), None),
            ("a=0".to_owned(), "a=0".to_owned(), None),
        ];
        for (before, after, expected) in cases {
            let found = symptoms(&TRACKED, &counting(&before, &after), 1.0);
            assert_eq!(found.first().map(|one| one.found.as_str()), expected, "{before} {after}");
        }
    }
}
