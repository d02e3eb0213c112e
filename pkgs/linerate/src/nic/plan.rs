//! Plans a CPU for each queue.
//!
//! A plan depends only on the machine, the policy and the number of queues. It doesn't depend on the current settings,
//! so planning again after applying gives the same plan.

use serde::Serialize;

use super::Policy;
use crate::cpus::Cpus;
use crate::topology::{Cpu, Topology};

/// Whether queues pass packets on to CPUs that have no queue (RPS, `Documentation/networking/scaling.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// Only if there are fewer queues than CPUs, and not to isolated or tickless CPUs.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Where the queues of an interface are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The policy it follows.
    pub policy: Policy,
    /// The CPUs that may serve queues.
    pub allowed: Cpus,
    /// The placement of each queue, by number.
    pub placements: Vec<Placement>,
}

/// Where a queue is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The CPU of its interrupts.
    pub cpu: usize,
    /// The CPUs that its received packets are passed to; if none, they stay on the interrupt's CPU.
    pub rps: Cpus,
    /// The CPUs that send through it.
    pub xps: Cpus,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The interface has no queues.
    #[error("there are no queues to place")]
    NoQueues,
    /// A CPU in the policy isn't online.
    #[error("CPU {cpu} is not online: {online} are")]
    Offline {
        /// The CPU.
        cpu: usize,
        /// The CPUs that are online.
        online: Cpus,
    },
    /// The policy leaves no CPU.
    #[error("policy {0} leaves no CPU for queues")]
    NoCpus(Policy),
}

impl Plan {
    /// Plans `queues` queues of an interface on NUMA node `node`, if that is known.
    pub fn new(
        topology: &Topology,
        node: Option<usize>,
        queues: usize,
        policy: &Policy,
        steering: Steering,
    ) -> Result<Self, Error> {
        if queues == 0 {
            return Err(Error::NoQueues);
        }
        let order = order(topology, node, policy)?;
        if order.is_empty() {
            return Err(Error::NoCpus(policy.clone()));
        }
        let cpus: Vec<usize> = (0..queues).map(|queue| order[queue % order.len()]).collect();
        let steerable: Vec<usize> = order.iter().copied().filter(|&cpu| topology.steerable(cpu)).collect();
        let idle = steerable.iter().any(|cpu| !cpus.contains(cpu));
        let rps: Vec<Cpus> = if steering == Steering::Auto && idle {
            // A queue's own CPU may be one that packets can't be passed to.
            let shares = shares(topology, &cpus, &steerable).into_iter();
            shares.map(|share| share.iter().filter(|&cpu| topology.steerable(cpu)).collect()).collect()
        } else {
            vec![Cpus::default(); queues]
        };
        // Programs send from the CPU that they run on, so each CPU needs a queue to send through, even a reserved one.
        let senders: Vec<usize> = topology.online().iter().collect();
        let xps = shares(topology, &cpus, &senders);
        let placements = cpus.into_iter().zip(rps).zip(xps);
        let placements = placements.map(|((cpu, rps), xps)| Placement { cpu, rps, xps }).collect();
        Ok(Self { policy: policy.clone(), allowed: order.into_iter().collect(), placements })
    }
}

/// The CPUs that may serve queues, in the order in which they are assigned.
fn order(topology: &Topology, node: Option<usize>, policy: &Policy) -> Result<Vec<usize>, Error> {
    let online = topology.online();
    let there = |cpu: usize| {
        if online.contains(cpu) { Ok(()) } else { Err(Error::Offline { cpu, online: online.clone() }) }
    };
    let free = online.without(&topology.isolated);
    let allowed = match policy {
        Policy::Pin(cpus) => {
            cpus.iter().try_for_each(|&cpu| there(cpu))?;
            return Ok(cpus.clone());
        }
        Policy::Spread => free,
        Policy::Local => match node {
            Some(node) => free.within(&topology.on_node(node)),
            None => free,
        },
        Policy::Reserve(cpus) => {
            cpus.iter().try_for_each(there)?;
            free.without(cpus)
        }
    };
    let mut order: Vec<&Cpu> = topology.cpus.iter().filter(|cpu| allowed.contains(cpu.id)).collect();
    order.sort_by_key(|cpu| {
        // A sibling thread that is reserved makes the core half used, but not by a queue. Such a core comes after free
        // cores and before cores that already serve a queue.
        let mates = topology.cpus.iter().filter(|other| other.core == cpu.core && other.id != cpu.id);
        let (mates, kept): (Vec<&Cpu>, Vec<&Cpu>) = mates.partition(|mate| allowed.contains(mate.id));
        let shared = mates.iter().filter(|mate| mate.id < cpu.id).count();
        let taken = shared + kept.len();
        let remote = node.is_some_and(|node| node != cpu.node);
        (taken, shared, remote, cpu.efficient, cpu.id)
    });
    Ok(order.into_iter().map(|cpu| cpu.id).collect())
}

/// Assigns every CPU in `among` to a queue, as evenly as possible. A CPU that serves a queue gets that queue; each
/// other CPU gets the nearest of the queues with the fewest CPUs.
fn shares(topology: &Topology, queues: &[usize], among: &[usize]) -> Vec<Cpus> {
    let known = |id: usize| topology.cpus.iter().find(|cpu| cpu.id == id);
    let mut shares: Vec<Cpus> = queues.iter().map(|&cpu| Cpus::from_iter([cpu])).collect();
    let places: Vec<Option<&Cpu>> = queues.iter().map(|&cpu| known(cpu)).collect();
    for &id in among.iter().filter(|id| !queues.contains(id)) {
        let Some(cpu) = known(id) else { continue };
        let nearest = (0..queues.len()).min_by_key(|&queue| {
            let other = places[queue];
            let core = other.is_some_and(|other| other.core == cpu.core);
            let node = other.is_some_and(|other| other.node == cpu.node);
            (shares[queue].len(), !core, !node)
        });
        if let Some(queue) = nearest {
            shares[queue].insert(id);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    /// `nodes` NUMA nodes with `cores` cores of `threads` threads each. They are numbered as on PCs: the first threads
    /// of all cores come first.
    fn machine(nodes: usize, cores: usize, threads: usize) -> Topology {
        let all = nodes * cores;
        let cpu = |id| Cpu { id, core: id % all, node: id % all / cores, efficient: false };
        Topology { cpus: (0..all * threads).map(cpu).collect(), ..Topology::default() }
    }

    fn cpus(plan: &Plan) -> Vec<usize> {
        plan.placements.iter().map(|placement| placement.cpu).collect()
    }

    fn planned(topology: &Topology, node: Option<usize>, queues: usize, policy: &str) -> Result<Plan, Error> {
        Plan::new(topology, node, queues, &policy.parse().expect("a policy"), Steering::Auto)
    }

    #[test]
    fn a_core_each_comes_before_siblings_and_the_near_node_before_the_far() {
        let one = machine(1, 4, 2);
        let two = machine(2, 2, 2);
        type Case<'c> = (&'c Topology, Option<usize>, usize, &'c str, &'c [usize]);
        let cases: [Case<'_>; 10] = [
            (&one, None, 4, "spread", &[0, 1, 2, 3]),
            (&one, None, 6, "spread", &[0, 1, 2, 3, 4, 5]),
            (&one, None, 9, "spread", &[0, 1, 2, 3, 4, 5, 6, 7, 0]),
            (&two, Some(1), 8, "spread", &[2, 3, 0, 1, 6, 7, 4, 5]),
            (&two, Some(1), 5, "local", &[2, 3, 6, 7, 2]),
            (&two, None, 3, "local", &[0, 1, 2]),
            (&one, None, 3, "pin=7,2", &[7, 2, 7]),
            (&one, None, 3, "reserve=0,4", &[1, 2, 3]),
            // CPUs 4 and 5 come after the whole cores, since their siblings are reserved.
            (&one, None, 6, "reserve=0-1", &[2, 3, 4, 5, 6, 7]),
            (&one, None, 3, "reserve=0,2", &[1, 3, 4]),
        ];
        for (topology, node, queues, policy, expected) in cases {
            let plan = planned(topology, node, queues, policy).expect(policy);
            assert_eq!(cpus(&plan), expected, "{policy}, {queues} queues");
        }
    }

    #[test]
    fn isolated_cpus_serve_queues_only_when_they_are_named() {
        let mut topology = machine(1, 4, 1);
        topology.isolated = Cpus::from_iter([1, 2]);
        assert_eq!(cpus(&planned(&topology, None, 2, "spread").expect("a plan")), [0, 3]);
        assert_eq!(cpus(&planned(&topology, None, 2, "pin=1-2").expect("a plan")), [1, 2]);
    }

    #[test]
    fn packets_are_handed_on_to_no_isolated_or_tickless_cpu() {
        let isolated = Topology { isolated: Cpus::from_iter([1, 2]), ..machine(1, 4, 1) };
        let tickless = Topology { nohz_full: Cpus::from_iter([2, 3]), ..machine(1, 4, 1) };
        let cases: [(&Topology, usize, &str, &[&str]); 5] = [
            (&isolated, 1, "pin=1-2", &[""]),
            (&isolated, 1, "pin=1,0,2-3", &["0,3"]),
            (&isolated, 2, "pin=1,0,2-3", &["3", "0"]),
            (&tickless, 2, "spread", &["", ""]),
            (&tickless, 1, "spread", &["0-1"]),
        ];
        for (topology, queues, policy, expected) in cases {
            let plan = planned(topology, None, queues, policy).expect(policy);
            let rps: Vec<String> =
                plan.placements.iter().map(|placement| placement.rps.to_string()).collect();
            assert_eq!(rps, expected, "{policy}, {queues} queues");
        }
    }

    #[test]
    fn packets_are_handed_on_only_where_queues_are_fewer_than_cpus() {
        let topology = machine(1, 4, 2);
        let rps = |queues, policy| -> Vec<String> {
            let plan = planned(&topology, None, queues, policy).expect("a plan");
            plan.placements.iter().map(|placement| placement.rps.to_string()).collect()
        };
        assert_eq!(rps(8, "spread"), [""; 8]);
        assert_eq!(rps(4, "spread"), ["0,4", "1,5", "2,6", "3,7"]);
        assert_eq!(rps(2, "pin=0,1"), ["", ""]);
        assert_eq!(rps(1, "reserve=0-3"), ["4-7"]);
        let policy = Policy::Spread;
        let off = Plan::new(&topology, None, 4, &policy, Steering::Off).expect("a plan");
        assert!(off.placements.iter().all(|placement| placement.rps.is_empty()));
    }

    #[test]
    fn every_cpu_sends_through_a_queue_near_it() {
        let topology = machine(2, 2, 2);
        let plan = planned(&topology, Some(0), 2, "local").expect("a plan");
        let xps: Vec<String> = plan.placements.iter().map(|placement| placement.xps.to_string()).collect();
        assert_eq!(xps, ["0,2,4,6", "1,3,5,7"]);
    }

    #[test]
    fn what_cannot_be_planned_says_why() {
        let topology = machine(1, 2, 1);
        assert_eq!(planned(&topology, None, 0, "spread"), Err(Error::NoQueues));
        for policy in ["pin=2", "reserve=2"] {
            let online = Cpus::from_iter([0, 1]);
            assert_eq!(planned(&topology, None, 1, policy), Err(Error::Offline { cpu: 2, online }));
        }
        let all = "reserve=0-1".parse().expect("a policy");
        assert_eq!(planned(&topology, None, 1, "reserve=0-1"), Err(Error::NoCpus(all)));
    }

    prop_compose! {
        /// A machine with some CPUs offline, some isolated and some tickless, and a policy, which may leave no CPU.
        fn any_case()(
            nodes in 1..4_usize, cores in 1..9_usize, threads in 1..3_usize,
        )(
            offline in btree_set(0..nodes * cores * threads, 0..4),
            isolated in btree_set(0..nodes * cores * threads, 0..3),
            nohz_full in btree_set(0..nodes * cores * threads, 0..3),
            listed in btree_set(0..nodes * cores * threads, 1..6),
            reversed in any::<bool>(), kind in 0..4,
            node in prop::option::of(0..nodes), queues in 1..70_usize, off in any::<bool>(),
            topology in Just(machine(nodes, cores, threads)),
        ) -> (Topology, Option<usize>, usize, Policy, Steering) {
            let mut topology = topology;
            topology.cpus.retain(|cpu| !offline.contains(&cpu.id));
            topology.isolated = isolated.into_iter().collect();
            topology.nohz_full = nohz_full.into_iter().collect();
            let mut pinned: Vec<usize> = listed.iter().copied().collect();
            if reversed {
                pinned.reverse();
            }
            let policy = match kind {
                0 => Policy::Spread,
                1 => Policy::Local,
                2 => Policy::Pin(pinned),
                _ => Policy::Reserve(listed.into_iter().collect()),
            };
            (topology, node, queues, policy, if off { Steering::Off } else { Steering::Auto })
        }
    }

    proptest! {
        #[test]
        fn a_plan_keeps_its_promises((topology, node, queues, policy, steering) in any_case()) {
            let planned = Plan::new(&topology, node, queues, &policy, steering);
            let plan = match planned {
                Ok(plan) => plan,
                Err(Error::Offline { cpu, online }) => {
                    prop_assert!(!online.contains(cpu));
                    return Ok(());
                }
                Err(Error::NoCpus(_)) => return Ok(()),
                Err(Error::NoQueues) => return Err(TestCaseError::fail("there are queues")),
            };
            // Every queue has exactly one placement.
            prop_assert_eq!(plan.placements.len(), queues);
            // No queue is outside the allowed CPUs, which are online and permitted by the policy.
            let online = topology.online();
            prop_assert!(plan.allowed.is_subset(&online));
            match &policy {
                Policy::Pin(cpus) => prop_assert!(plan.allowed.iter().all(|cpu| cpus.contains(&cpu))),
                Policy::Reserve(cpus) => prop_assert!(plan.allowed.within(cpus).is_empty()),
                Policy::Local => if let Some(node) = node {
                    prop_assert!(plan.allowed.is_subset(&topology.on_node(node)));
                },
                Policy::Spread => prop_assert_eq!(&plan.allowed, &online.without(&topology.isolated)),
            }
            let mut load: BTreeMap<usize, usize> = plan.allowed.iter().map(|cpu| (cpu, 0)).collect();
            for placement in &plan.placements {
                prop_assert!(plan.allowed.contains(placement.cpu));
                prop_assert!(placement.rps.is_subset(&plan.allowed));
                *load.entry(placement.cpu).or_default() += 1;
            }
            // The numbers of queues on any two CPUs differ by at most one.
            let (least, most) = (load.values().min(), load.values().max());
            prop_assert!(most.copied().unwrap_or(0) - least.copied().unwrap_or(0) <= 1);
            // No core gets a second queue while another core has none.
            if !matches!(policy, Policy::Pin(_)) && queues <= topology.cores(&plan.allowed) {
                let placed: Cpus = cpus(&plan).into_iter().collect();
                prop_assert_eq!(topology.cores(&placed), queues);
            }
            // Every CPU sends through a queue, and only through one if there are no more queues than CPUs.
            let senders: Vec<usize> = plan.placements.iter().flat_map(|placement| placement.xps.iter()).collect();
            prop_assert_eq!(&senders.iter().copied().collect::<Cpus>(), &online);
            if queues <= plan.allowed.len() {
                prop_assert_eq!(senders.len(), online.len());
            }
            // Packets are passed once to every allowed CPU that is neither isolated nor tickless, or they stay on the
            // interrupt's CPU.
            let steered: Vec<usize> = plan.placements.iter().flat_map(|placement| placement.rps.iter()).collect();
            let kept: Cpus = topology.isolated.iter().chain(topology.nohz_full.iter()).collect();
            let steerable = plan.allowed.without(&kept);
            let serving: Cpus = cpus(&plan).into_iter().collect();
            prop_assert!(steered.iter().all(|&cpu| steerable.contains(cpu)));
            if steering == Steering::Auto && !steerable.is_subset(&serving) {
                prop_assert_eq!(steered.len(), steerable.len());
                // A queue's own CPU counts even if it is none of them.
                let shares = plan.placements.iter();
                let shares = shares.map(|one| one.rps.len() + usize::from(kept.contains(one.cpu)));
                let (least, most) = (shares.clone().min(), shares.max());
                prop_assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 1);
            } else {
                prop_assert!(steered.is_empty());
            }
            // The same request gives the same plan.
            prop_assert_eq!(Plan::new(&topology, node, queues, &policy, steering), Ok(plan));
        }
    }
}
