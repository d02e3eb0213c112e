//! CPUs: which ones share a core or a NUMA node, and which ones are slower than others.

use std::io;

use serde::Serialize;

use crate::cpus::Cpus;
use crate::system::System;

/// Where the kernel describes CPUs (`Documentation/ABI/testing/sysfs-devices-system-cpu`).
pub const CPUS: &str = "/sys/devices/system/cpu";

/// Where it describes NUMA nodes (`Documentation/ABI/stable/sysfs-devices-node`).
const NODES: &str = "/sys/devices/system/node";

/// The efficiency cores of a hybrid CPU, which have their own performance counters.
const EFFICIENT: &str = "/sys/devices/cpu_atom/cpus";

/// A CPU as the scheduler sees it: a hardware thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub id: usize,
    /// The lowest CPU on the same physical core.
    pub core: usize,
    /// Its NUMA node.
    pub node: usize,
    /// Whether its core is one of a hybrid CPU's slow ones.
    pub efficient: bool,
}

/// The online CPUs in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The CPUs.
    pub cpus: Vec<Cpu>,
    /// The CPUs that the scheduler keeps tasks away from (`isolcpus`).
    pub isolated: Cpus,
    /// The CPUs without a timer tick while they run a single task (`nohz_full`).
    pub nohz_full: Cpus,
}

impl Topology {
    /// Reads the topology.
    pub fn read(system: &dyn System) -> io::Result<Self> {
        let list = |path: &str| -> io::Result<Cpus> {
            system.read(path)?.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        };
        let optional = |path: &str| match list(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Cpus::default()),
            read => read,
        };
        let online = list(&format!("{CPUS}/online"))?;
        let efficient = optional(EFFICIENT)?;
        let mut nodes = Vec::new();
        for name in system.list(NODES).unwrap_or_default() {
            if let Some(Ok(node)) = name.strip_prefix("node").map(str::parse) {
                nodes.push((node, optional(&format!("{NODES}/{name}/cpulist"))?));
            }
        }
        let mut cpus = Vec::with_capacity(online.len());
        for id in online.iter() {
            let siblings = optional(&format!("{CPUS}/cpu{id}/topology/thread_siblings_list"))?;
            cpus.push(Cpu {
                id,
                core: siblings.iter().next().unwrap_or(id),
                node: nodes.iter().find(|(_, cpus)| cpus.contains(id)).map_or(0, |(node, _)| *node),
                efficient: efficient.contains(id),
            });
        }
        // Without such CPUs, kernels print nothing or "(null)".
        let nohz_full = list(&format!("{CPUS}/nohz_full")).unwrap_or_default();
        Ok(Self { cpus, isolated: optional(&format!("{CPUS}/isolated"))?, nohz_full })
    }

    /// Whether packets may be passed to a CPU (RPS). Since Linux 5.9, the kernel takes isolated and tickless CPUs out
    /// of a mask, and refuses it if none is left (`net/core/net-sysfs.c`).
    pub fn steerable(&self, cpu: usize) -> bool {
        !self.isolated.contains(cpu) && !self.nohz_full.contains(cpu)
    }

    /// The numbers of all of them.
    pub fn online(&self) -> Cpus {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// The CPUs on a NUMA node.
    pub fn on_node(&self, node: usize) -> Cpus {
        self.cpus.iter().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect()
    }

    /// How many physical cores `cpus` are on.
    pub fn cores(&self, cpus: &Cpus) -> usize {
        let mut cores: Vec<usize> =
            self.cpus.iter().filter(|cpu| cpus.contains(cpu.id)).map(|cpu| cpu.core).collect();
        cores.sort_unstable();
        cores.dedup();
        cores.len()
    }

    /// How many NUMA nodes there are.
    pub fn nodes(&self) -> usize {
        let mut nodes: Vec<usize> = self.cpus.iter().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Recorded;

    #[test]
    fn cpus_without_a_tick_are_read_where_there_are_any() {
        for (nohz_full, expected) in [("2-3", "2-3"), ("(null)", ""), ("", "")] {
            let text = format!("{CPUS}/online = 0-3\n{CPUS}/nohz_full = {nohz_full}\n");
            let machine: Recorded = text.parse().expect("a machine");
            let topology = Topology::read(&machine).expect("CPUs");
            assert_eq!(topology.nohz_full.to_string(), expected, "{nohz_full}");
        }
    }
}
