//! Finds the CPUs that services run on, to show them next to a plan.

use serde::Serialize;

use crate::cpus::Cpus;
use crate::system::System;

/// Where services have their control groups (`Documentation/admin-guide/cgroup-v2.rst`).
pub const GROUPS: &str = "/sys/fs/cgroup/system.slice";

/// A running service, and its CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Its unit.
    pub unit: String,
    /// The CPUs that its threads are pinned to, each to a single one. If no thread is pinned so, all CPUs that they may
    /// run on.
    pub cpus: Cpus,
}

/// The processes of a unit.
pub fn processes(system: &dyn System, unit: &str) -> Vec<u32> {
    let text = system.read(&format!("{GROUPS}/{unit}/cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|pid| pid.trim().parse().ok()).collect()
}

/// The CPUs that each thread of a unit may run on (`Cpus_allowed_list`, proc_pid_status(5)).
pub fn threads(system: &dyn System, unit: &str) -> Vec<Cpus> {
    let mut all = Vec::new();
    for pid in processes(system, unit) {
        for thread in system.list(&format!("/proc/{pid}/task")).unwrap_or_default() {
            let status = system.read(&format!("/proc/{pid}/task/{thread}/status")).unwrap_or_default();
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            all.extend(list.and_then(|list| list.parse::<Cpus>().ok()));
        }
    }
    all
}

/// This project's running services, by name.
pub fn running(system: &dyn System) -> Vec<Service> {
    let units = system.list(GROUPS).unwrap_or_default();
    let units = units.into_iter().filter(|unit| unit.starts_with("linerate-") && unit.ends_with(".service"));
    let service = |unit: String| {
        let threads = threads(system, &unit);
        let pinned: Cpus = threads.iter().filter(|cpus| cpus.len() == 1).flat_map(Cpus::iter).collect();
        let all: Cpus = threads.iter().flat_map(Cpus::iter).collect();
        let cpus = if pinned.is_empty() { all } else { pinned };
        (!cpus.is_empty()).then_some(Service { unit, cpus })
    };
    units.filter_map(service).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Recorded;

    #[test]
    fn workers_are_where_threads_keep_to_one_cpu() {
        let machine: Recorded = "\
/sys/fs/cgroup/system.slice/linerate-links.service/cgroup.procs = 7
/sys/fs/cgroup/system.slice/linerate-files.service/cgroup.procs = 8
/sys/fs/cgroup/system.slice/linerate-api.service/cgroup.procs =
/sys/fs/cgroup/system.slice/sshd.service/cgroup.procs = 9
/proc/7/task/7/status = Cpus_allowed_list:	0-7
/proc/7/task/8/status = Cpus_allowed_list:	2
/proc/7/task/9/status = Cpus_allowed_list:	3
/proc/8/task/8/status = Cpus_allowed_list:	0-3
"
        .parse()
        .expect("a machine");
        let found: Vec<(String, String)> =
            running(&machine).into_iter().map(|service| (service.unit, service.cpus.to_string())).collect();
        let expected = [("linerate-files.service", "0-3"), ("linerate-links.service", "2-3")];
        assert_eq!(found, expected.map(|(unit, cpus)| (unit.to_owned(), cpus.to_owned())));
    }
}
