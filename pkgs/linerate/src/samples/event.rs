//! The kernel's events, a ring of records for each.
//!
//! A process has an event for each of its threads, which costs the others nothing; the machine has one for each CPU.

use std::collections::BTreeMap;
use std::io;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::record::{Event, What};
use super::{Error, Kind, Target};
use crate::system::System;
use crate::topology::Topology;

/// Memory of all rings together, in bytes, and of one at least and at most: powers of two.
const RINGS: usize = 32 << 20;
const LEAST_RING: usize = 32 << 10;
const MOST_RING: usize = 512 << 10;

/// What one round may take out of the rings: who switches faster than that loses records, and they are counted.
const MOST_EVENTS: usize = 1 << 16;

/// How the kernel's events are asked for.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    kernel: bool,
    kind: Kind,
}

impl Way {
    /// Those for a kind, the best first: a virtual machine may have no counters of its CPU's, and who is not root nothing of
    /// the kernel.
    fn all(kind: Kind) -> Vec<Self> {
        let way = |name, kernel| Self { name, kernel, kind };
        match kind {
            Kind::OnCpu { .. } => vec![
                way("cycles", true),
                way("cpu-clock", true),
                way("cycles", false),
                way("cpu-clock", false),
            ],
            Kind::Waiting => vec![way("context-switches", true)],
        }
    }

    fn open(self, whom: Whom, ring: usize) -> io::Result<Sampler> {
        let mut builder = match (self.kind, self.name) {
            (Kind::OnCpu { hertz }, name) => {
                let mut builder = match name {
                    "cycles" => Builder::new(Hardware::CPU_CYCLES),
                    _ => Builder::new(Software::CPU_CLOCK),
                };
                builder.sample_frequency(hertz.into());
                builder
            }
            (Kind::Waiting, _) => {
                let mut builder = Builder::new(Software::CONTEXT_SWITCHES);
                builder.sample_period(1).context_switch(true);
                builder
            }
        };
        builder
            .sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::CALLCHAIN)
            .sample_id_all(true)
            .clockid(Clock::MONOTONIC)
            .exclude_idle(true)
            .exclude_kernel(!self.kernel)
            .exclude_callchain_kernel(!self.kernel)
            .enabled(true);
        match whom {
            Whom::Thread(tid) => builder.observe_pid(tid.try_into().unwrap_or(i32::MAX)).any_cpu(),
            Whom::Cpu(cpu) => builder.any_pid().one_cpu(cpu),
        };
        builder.build()?.sampled(ring)
    }
}

/// Whom an event is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    Thread(u32),
    Cpu(usize),
}

/// Events that are open.
pub(super) struct Events {
    way: Way,
    ring: usize,
    open: BTreeMap<Whom, Sampler>,
    /// What happened later than the last round began: something of another CPU may come before it.
    later: Vec<Event>,
    lost: u64,
}

/// The kernel's clock that events have, in nanoseconds.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Whom events are to be of.
fn whom(system: &dyn System, target: &Target) -> Result<Vec<Whom>, Error> {
    if *target == Target::Machine {
        let topology = Topology::read(system).map_err(Error::Kernel)?;
        let most = RINGS / LEAST_RING;
        return match topology.cpus.len() {
            found if found > most => Err(Error::Many { what: "CPUs:", most, found }),
            _ => Ok(topology.cpus.iter().map(|cpu| Whom::Cpu(cpu.id)).collect()),
        };
    }
    let threads = Target::threads(system, &target.processes(system)?)?;
    Ok(threads.into_iter().map(Whom::Thread).collect())
}

impl Events {
    /// Opens those of a target, and begins to count.
    pub(super) fn open(system: &dyn System, target: &Target, kind: Kind) -> Result<Self, Error> {
        let whom = whom(system, target)?;
        // Room for threads that begin later.
        let ring = RINGS / (whom.len() * 2).max(1);
        let ring = (1 << ring.max(1).ilog2()).clamp(LEAST_RING, MOST_RING);
        let Some(&first) = whom.first() else { return Err(Error::Kernel(Errno::SRCH.into())) };
        let mut why = None;
        for way in Way::all(kind) {
            match way.open(first, ring) {
                Ok(sampler) => {
                    let mut events = Self {
                        way,
                        ring,
                        open: BTreeMap::from([(first, sampler)]),
                        later: Vec::new(),
                        lost: 0,
                    };
                    events.add(&whom)?;
                    return Ok(events);
                }
                Err(error) => why = Some(worse(why, error)),
            }
        }
        let waiting = kind == Kind::Waiting;
        Err(failed(system, why.unwrap_or_else(|| Errno::NOSYS.into()), waiting))
    }

    /// Opens events for threads that have begun since.
    pub(super) fn follow(&mut self, system: &dyn System, target: &Target) -> Result<(), Error> {
        if *target == Target::Machine {
            return Ok(());
        }
        match whom(system, target) {
            Ok(whom) => self.add(&whom),
            // They have ended, or are too many by now: those that are known are looked at all the same.
            Err(Error::NoService(_) | Error::NoProcess(_) | Error::Many { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn add(&mut self, whom: &[Whom]) -> Result<(), Error> {
        for &one in whom {
            if self.open.contains_key(&one) || self.open.len() * self.ring >= RINGS {
                continue;
            }
            match self.way.open(one, self.ring) {
                Ok(sampler) => drop(self.open.insert(one, sampler)),
                // It has ended between.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => {}
                // Those that are open are worth more than none.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) => {
                    break;
                }
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
                    return Err(Error::Rings(error));
                }
                Err(error) => return Err(Error::Kernel(error)),
            }
        }
        Ok(())
    }

    /// Hands on what has happened, in its order; with `all` nothing is kept for the next time.
    pub(super) fn empty(&mut self, all: bool, mut each: impl FnMut(Event)) {
        let before = now();
        let mut events = std::mem::take(&mut self.later);
        for sampler in self.open.values_mut() {
            while events.len() < MOST_EVENTS {
                let Some(record) = sampler.next_record() else { break };
                let Some(event) = Event::read(record.ty(), record.misc(), &record.to_contiguous()) else {
                    continue;
                };
                if let What::Lost(lost) = event.what {
                    self.lost = self.lost.saturating_add(lost);
                }
                events.push(event);
            }
        }
        events.sort_by_key(|event| event.at);
        let ready = if all { events.len() } else { events.partition_point(|event| event.at < before) };
        self.later = events.split_off(ready);
        events.into_iter().for_each(&mut each);
    }

    /// Counts nothing more.
    pub(super) fn stop(&mut self) {
        for sampler in self.open.values_mut() {
            // A thread that has ended counts nothing anyway.
            let _ = sampler.disable();
        }
    }

    /// Whether all threads have ended.
    pub(super) fn ended(&self) -> bool {
        let runs = |whom: &Whom| match whom {
            Whom::Cpu(_) => true,
            // The file system has it by its number, wherever it belongs to.
            Whom::Thread(tid) => std::path::Path::new(&format!("/proc/{tid}")).exists(),
        };
        !self.open.keys().any(runs)
    }

    /// What the kernel calls them.
    pub(super) fn name(&self) -> &'static str {
        self.way.name
    }

    /// Whether the kernel's own part is seen.
    pub(super) fn kernel(&self) -> bool {
        self.way.kernel
    }

    /// Records that found no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

/// Which of two errors says more: that it is not allowed, before that there is none of it.
fn worse(one: Option<io::Error>, other: io::Error) -> io::Error {
    match one {
        Some(one) if one.kind() == io::ErrorKind::PermissionDenied => one,
        _ => other,
    }
}

fn failed(system: &dyn System, error: io::Error, waiting: bool) -> Error {
    match Errno::from_io_error(&error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            let paranoid = system.read("/proc/sys/kernel/perf_event_paranoid");
            let paranoid = paranoid.map_or_else(|_| "not known".into(), |text| text.trim().to_owned());
            Error::Denied { paranoid, waiting }
        }
        Some(Errno::NOSYS | Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV) => Error::Unsupported(error),
        _ => Error::Kernel(error),
    }
}
