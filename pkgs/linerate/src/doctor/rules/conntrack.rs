//! Connections that the kernel tracks.

use crate::doctor::{Finding, Rule, RuleContext, Severity};

/// The rule.
pub const RULE: Rule = Rule {
    name: "conntrack",
    about: "less than three quarters of the connections are tracked that may be",
    cost: "once it is full, packets of new connections are dropped: at 120 s in TIME_WAIT, 262,144 entries last for \
           2,200 connections a second",
    source: "Documentation/networking/nf_conntrack-sysctl.rst",
    compares: None,
    check,
};

fn check(context: &RuleContext<'_>) -> Vec<Finding> {
    let number = |name: &str| {
        let text = context.system.read(&format!("/proc/sys/net/netfilter/nf_conntrack_{name}")).ok()?;
        text.trim().parse::<f64>().ok()
    };
    let (Some(count), Some(max)) = (number("count"), number("max").filter(|max| *max > 0.0)) else {
        return Vec::new();
    };
    let severity = match count / max {
        full if full >= 0.95 => Severity::Critical,
        full if full >= 0.75 => Severity::Warning,
        _ => return Vec::new(),
    };
    let finding = Finding::symptom("conntrack", format!("{count} of {max} entries")).severity(severity);
    let remedy = "sysctl -w net.netfilter.nf_conntrack_max=1048576  # until the services' ports are not tracked \
                  (linerate.appliance.enable)";
    vec![finding.effect(count / max).remedy(remedy)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::symptoms;

    #[test]
    fn a_table_that_fills_is_found_before_it_is_full() {
        let cases = [(700, None), (750, Some(Severity::Warning)), (960, Some(Severity::Critical))];
        for (count, expected) in cases {
            let machine = format!(
                "/proc/sys/net/netfilter/nf_conntrack_count = {count}\n/proc/sys/net/netfilter/nf_conntrack_max = 1000\n"
            );
            assert_eq!(symptoms(&RULE, &machine, 1.0).first().map(|one| one.severity), expected, "{count}");
        }
        assert!(symptoms(&RULE, "", 1.0).is_empty());
    }
}
