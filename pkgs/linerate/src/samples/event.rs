//! The kernel's events, each with its ring of records.
//!
//! For processes, there is an event per thread, so that other processes aren't slowed down. For the whole machine,
//! there is an event per CPU.

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

/// The memory of all rings together in bytes, and the least and most of a single one, which are powers of two.
const RINGS: usize = 32 << 20;
const LEAST_RING: usize = 32 << 10;
const MOST_RING: usize = 512 << 10;

/// The most records that one round takes out of the rings. If threads switch more often, records are lost, and the
/// losses are counted.
const MOST_EVENTS: usize = 1 << 16;

/// A way to ask for the kernel's events.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    kernel: bool,
    kind: Kind,
}

impl Way {
    /// The events that can be tried for a kind, best first. A virtual machine may have no hardware counters, and
    /// without root the kernel's own functions can't be recorded.
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

/// The thread or CPU that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    Thread(u32),
    Cpu(usize),
}

/// Open events.
pub(super) struct Events {
    way: Way,
    ring: usize,
    open: BTreeMap<Whom, Sampler>,
    /// Events from after the start of the last round. They wait for the next round, since an earlier event of another
    /// CPU may still arrive.
    later: Vec<Event>,
    lost: u64,
}

/// The current time of the clock that events use, in nanoseconds.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The threads or CPUs that need an event for a target.
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
    /// Opens a target's events and starts counting.
    pub(super) fn open(system: &dyn System, target: &Target, kind: Kind) -> Result<Self, Error> {
        let whom = whom(system, target)?;
        // Leave memory for threads that start later.
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

    /// Opens events for threads that have started since the last call.
    pub(super) fn follow(&mut self, system: &dyn System, target: &Target) -> Result<(), Error> {
        if *target == Target::Machine {
            return Ok(());
        }
        match whom(system, target) {
            Ok(whom) => self.add(&whom),
            // All threads have ended, or there are now too many. The open events continue.
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
                // The thread has ended in the meantime.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => {}
                // No more files can be opened. Continue with the events that are open.
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

    /// Calls `each` with the events so far, in order. With `all`, no event is kept for the next round.
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

    /// Stops counting.
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
            // `/proc` has an entry for every thread ID, not only for processes.
            Whom::Thread(tid) => std::path::Path::new(&format!("/proc/{tid}")).exists(),
        };
        !self.open.keys().any(runs)
    }

    /// The kernel's name for the event.
    pub(super) fn name(&self) -> &'static str {
        self.way.name
    }

    /// Whether the kernel's own part is included.
    pub(super) fn kernel(&self) -> bool {
        self.way.kernel
    }

    /// How many records were lost because a ring was full.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

/// The more informative of two errors: missing permission tells more than missing support.
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
