//! Finds what keeps a machine from reaching its line rate: differences from its [`crate::profile`], and problems that
//! don't depend on the profile.
//!
//! Each rule checks one thing. [`RULES`] has all rules, in the order in which they are checked.

mod denied;
pub mod finding;
mod rules;
pub mod sample;
pub mod since;
pub mod textfile;

use std::time::Duration;

use denied::Noticing;

use crate::profile::Profile;
use crate::system::System;

pub use finding::{Finding, Severity};
pub use rules::RULES;
pub(crate) use rules::placement::wishes;
pub use sample::{Interval, Sample};

/// What a rule can look at.
pub struct RuleContext<'a> {
    /// The machine.
    pub system: &'a dyn System,
    /// How it should be.
    pub profile: &'a Profile,
    /// What was counted recently.
    pub interval: &'a Interval,
}

/// A check for one thing.
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What it checks.
    pub about: &'static str,
    /// What a deviation costs.
    pub cost: &'static str,
    /// Where the rule gets its data.
    pub source: &'static str,
    /// Whether the rule has something to compare the machine with, such as the profile or what was applied. `None`
    /// means that the rule always checks.
    pub compares: Option<fn(&RuleContext<'_>) -> bool>,
    /// The check itself.
    pub check: fn(&RuleContext<'_>) -> Vec<Finding>,
}

impl Rule {
    /// Whether it can find anything.
    pub fn applies(&self, context: &RuleContext<'_>) -> bool {
        self.compares.is_none_or(|compares| compares(context))
    }
}

/// The rules that can't find anything, since they have nothing to compare the machine with.
pub fn idle(context: &RuleContext<'_>) -> Vec<&'static str> {
    RULES.iter().filter(|rule| !rule.applies(context)).map(|rule| rule.name).collect()
}

/// The result of examining a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// All findings, worst first.
    pub findings: Vec<Finding>,
    /// The rules that had nothing to compare the machine with.
    pub idle: Vec<&'static str>,
    /// The rules that weren't allowed to read everything they check, each with the first thing that was refused.
    pub denied: Vec<(&'static str, String)>,
}

/// Watches the machine's counters for this many seconds, or uses the counts since boot if that is 0, and examines it.
pub fn diagnose(system: &dyn System, profile: &Profile, seconds: u64) -> Diagnosis {
    let interval = if seconds == 0 {
        let uptime = system.read("/proc/uptime").unwrap_or_default();
        let seconds = uptime.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(1.0);
        Interval { before: Sample::default(), after: Sample::read(system), seconds }
    } else {
        let before = Sample::read(system);
        system.pause(Duration::from_secs(seconds));
        Interval { before, after: Sample::read(system), seconds: seconds as f64 }
    };
    let context = RuleContext { system, profile, interval: &interval };
    let (findings, denied) = examine(&context);
    Diagnosis { findings, idle: idle(&context), denied }
}

/// All findings, worst first, and the rules that couldn't read everything they check.
pub fn examine(context: &RuleContext<'_>) -> (Vec<Finding>, Vec<(&'static str, String)>) {
    let (mut findings, mut denied) = (Vec::new(), Vec::new());
    for rule in RULES.iter().filter(|rule| rule.applies(context)) {
        let noticing = Noticing::new(context.system);
        let found = (rule.check)(&RuleContext { system: &noticing, ..*context });
        denied.extend(noticing.denied().map(|what| (rule.name, what)));
        for finding in found {
            let cost = if finding.cost.is_empty() { rule.cost.to_owned() } else { finding.cost };
            findings.push(Finding { rule: rule.name, cost, ..finding });
        }
    }
    finding::rank(&mut findings);
    (findings, denied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Recorded;

    /// An interface with a driver's counters, before and after.
    pub fn counting(before: &str, after: &str) -> String {
        format!(
            "/sys/class/net/ens5 -> ../../devices/pci/0000:00:05.0/net/ens5
/sys/devices/pci/0000:00:05.0/net/ens5/device -> ../../../0000:00:05.0
/sys/devices/pci/0000:00:05.0/driver -> /sys/bus/pci/drivers/ena
/sys/bus/pci/drivers/ena/uevent =
/sys/devices/pci/0000:00:05.0/net/ens5/queues/rx-[0-3]/rps_cpus = 0
/sys/devices/pci/0000:00:05.0/net/ens5/statistics/rx_packets = 1000
/sys/devices/pci/0000:00:05.0/net/ens5/statistics/tx_packets = 1000
/sys/devices/pci/0000:00:05.0/net/ens5/statistics/tx_bytes = 0
statistics ens5 {before}
later
/sys/devices/pci/0000:00:05.0/net/ens5/statistics/rx_packets = 10000
/sys/devices/pci/0000:00:05.0/net/ens5/statistics/tx_bytes = 1000000000
statistics ens5 {after}
"
        )
    }

    /// What one rule finds with this machine and profile, both given as text.
    pub fn findings(rule: &Rule, machine: &str, profile: &str) -> Vec<Finding> {
        let machine: Recorded = machine.parse().expect("a machine");
        let profile: Profile = profile.parse().expect("a profile");
        (rule.check)(&RuleContext { system: &machine, profile: &profile, interval: &Interval::default() })
    }

    /// What one rule finds on a machine that was watched for some seconds.
    pub fn symptoms(rule: &Rule, machine: &str, seconds: f64) -> Vec<Finding> {
        look(rule, machine, "{}", seconds)
    }

    /// The same with a profile.
    pub fn look(rule: &Rule, machine: &str, profile: &str, seconds: f64) -> Vec<Finding> {
        let machine: Recorded = machine.parse().expect("a machine");
        let profile: Profile = profile.parse().expect("a profile");
        let before = Sample::read(&machine);
        machine.pause(Duration::from_secs_f64(seconds));
        let interval = Interval { before, after: Sample::read(&machine), seconds };
        (rule.check)(&RuleContext { system: &machine, profile: &profile, interval: &interval })
    }

    #[test]
    fn rules_have_a_name_each_and_say_why() {
        let mut names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
        for rule in RULES {
            assert!(
                [rule.about, rule.cost, rule.source].iter().all(|text| !text.is_empty()),
                "{}",
                rule.name
            );
        }
    }
}
