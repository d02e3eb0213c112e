//! The CPUs' frequency and number.

use crate::cpus::Cpus;
use crate::doctor::{Finding, Rule, RuleContext};
use crate::topology::{CPUS, Topology};

/// The governor.
pub const GOVERNOR: Rule = Rule {
    name: "governor",
    about: "every CPU has the frequency governor of the profile",
    cost: "a core that slept has to speed up first and answers late",
    source: "Documentation/admin-guide/pm/cpufreq.rst; tuned, profile throughput-performance",
    compares: Some(|context| context.profile.cpu.governor.is_some()),
    check: governor,
};

/// The number.
pub const ONLINE: Rule = Rule {
    name: "cpus",
    about: "as many CPUs are online as the profile says",
    cost: "less is done at a time, and a placement made for the others does not fit",
    source: "Documentation/core-api/cpu_hotplug.rst",
    compares: Some(|context| context.profile.cpu.threads.is_some()),
    check: online,
};

fn governor(context: &RuleContext<'_>) -> Vec<Finding> {
    let Some(wanted) = &context.profile.cpu.governor else { return Vec::new() };
    let Ok(topology) = Topology::read(context.system) else { return Vec::new() };
    let mut others: Vec<(String, Cpus)> = Vec::new();
    for cpu in topology.online().iter() {
        let path = format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor");
        let found = context.system.read(&path).map_or("none".to_owned(), |text| text.trim().to_owned());
        match others.iter_mut().find(|(name, _)| *name == found) {
            _ if found == *wanted => {}
            Some((_, cpus)) => cpus.insert(cpu),
            None => others.push((found, Cpus::from_iter([cpu]))),
        }
    }
    let mend = format!("echo {wanted} | tee {CPUS}/cpu*/cpufreq/scaling_governor");
    let finding = |(found, cpus)| Finding::drift(format!("cpu {cpus}"), wanted, found).remedy(mend.clone());
    others.into_iter().map(finding).collect()
}

fn online(context: &RuleContext<'_>) -> Vec<Finding> {
    let Some(wanted) = context.profile.cpu.threads else { return Vec::new() };
    let online = Topology::read(context.system).map(|topology| topology.online()).unwrap_or_default();
    if online.len() == wanted {
        return Vec::new();
    }
    let remedy = format!("echo 1 | tee {CPUS}/cpu[1-9]*/online  # or what the hypervisor gives");
    vec![Finding::drift("online", wanted, format!("{} ({online})", online.len())).remedy(remedy)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::findings;

    const MACHINE: &str = "/sys/devices/system/cpu/online = 0-3
/sys/devices/system/cpu/cpu[0-1]/cpufreq/scaling_governor = performance
/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor = powersave
";

    #[test]
    fn cpus_with_another_governor_are_named_together() {
        let profile = r#"{"cpu": {"governor": "performance"}}"#;
        let found: Vec<(String, String)> =
            findings(&GOVERNOR, MACHINE, profile).into_iter().map(|one| (one.subject, one.found)).collect();
        let expected = [("cpu 2", "powersave"), ("cpu 3", "none")];
        assert_eq!(found, expected.map(|(name, found)| (name.to_owned(), found.to_owned())));
    }

    #[test]
    fn another_number_of_cpus_is_found() {
        assert!(findings(&ONLINE, MACHINE, r#"{"cpu": {"threads": 4}}"#).is_empty());
        assert_eq!(findings(&ONLINE, MACHINE, r#"{"cpu": {"threads": 8}}"#)[0].found, "4 (0-3)");
    }
}
