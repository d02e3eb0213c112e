//! Records what processes do: call stacks sampled by the kernel (perf_event_open(2)) while they are on a CPU or while
//! they wait.
//!
//! - `target`: which processes to record.
//! - `event`: the kernel's events, and the rings it writes them to.
//! - `record`: the records in those rings.
//! - `stacks`: the counted stacks, within limits.
//! - `symbols`, `kernel`: the names of addresses.
//!
//! The kernel walks stacks by frame pointers. Some code has none, such as Debian's C library and Rust code without
//! `-C force-frame-pointers`. There, the innermost function is right, but callers may be missing or wrong. DWARF
//! unwinding isn't supported, since it would need a copy of each stack.

mod event;
mod kernel;
mod record;
mod stacks;
mod symbols;
mod target;

use std::io;
use std::time::{Duration, Instant};

use console::flame::Unit;

use crate::system::System;
use event::Events;
use stacks::{Stacks, Waits};
use symbols::Symbols;
pub use target::{Target, is_name};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Running code, sampled this often per second of CPU time.
    OnCpu {
        /// How often.
        hertz: u32,
    },
    /// Waiting, weighted by its duration: from the time that a thread leaves its CPU until it returns.
    Waiting,
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Folded stacks, one per line, sorted: the command's name, then the functions from the outermost to the innermost.
    /// Functions of the kernel have the suffix `_[k]`.
    pub folded: String,
    /// The unit of their weights.
    pub unit: Unit,
    /// The event that the kernel counted.
    pub event: &'static str,
    /// Whether the kernel's own part is included.
    pub kernel: bool,
    /// How many stacks were recorded.
    pub seen: u64,
    /// How many of the kernel's records were lost because its rings were full.
    pub lost: u64,
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such service is running.
    #[error("{0} does not run here: neither a unit nor a process is called that")]
    NoService(String),
    /// No such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// There are more threads or CPUs than can be recorded.
    #[error("{what} {most} are looked at at most, and there are {found}")]
    Many {
        /// What there is too much of.
        what: &'static str,
        /// How many can be recorded.
        most: usize,
        /// How many there are.
        found: usize,
    },
    /// This user may not record them.
    #[error(
        "perf events are not for this user (kernel.perf_event_paranoid is {paranoid}{}): run it as root, or with CAP_PERFMON",
        if *.waiting { ", and waiting is seen by the kernel's events alone" } else { "" }
    )]
    Denied {
        /// The kernel's setting.
        paranoid: String,
        /// Whether waiting was requested.
        waiting: bool,
    },
    /// The kernel doesn't support it.
    #[error("this kernel has no perf events for that: {0}")]
    Unsupported(#[source] io::Error),
    /// This user may not have rings with this much memory.
    #[error(
        "cannot map the kernel's rings: {0}; kernel.perf_event_mlock_kb bounds them where one is not root"
    )]
    Rings(#[source] io::Error),
    /// Any other error of the kernel.
    #[error("perf events: {0}")]
    Kernel(#[source] io::Error),
}

impl Error {
    /// Whether other arguments would have helped.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoService(_) | Self::NoProcess(_))
    }
}

/// How often the rings are emptied.
const EMPTIED: Duration = Duration::from_millis(25);

/// How often to look for new threads.
const LOOKED: Duration = Duration::from_millis(250);

/// Records processes for this long.
///
/// # Errors
/// When there are no such processes, or the kernel doesn't allow it.
pub fn take(system: &dyn System, target: &Target, kind: Kind, time: Duration) -> Result<Taken, Error> {
    let mut events = Events::open(system, target, kind)?;
    let (mut stacks, mut waits, mut symbols) = (Stacks::default(), Waits::default(), Symbols::default());
    let own = std::process::id();
    let begun = Instant::now();
    let mut looked = begun;
    loop {
        let over = begun.elapsed() >= time;
        if over {
            events.stop();
        }
        events.empty(over, |event| {
            let stack = match kind {
                Kind::OnCpu { .. } => event.sample().map(|stack| (stack, 1)),
                Kind::Waiting => waits.note(event),
            };
            // Skip this process and idle CPUs.
            if let Some((stack, weight)) = stack
                && stack.pid != 0
                && (stack.pid != own || target.names(own))
            {
                symbols.meet(stack.pid);
                stacks.add(stack, weight);
            }
        });
        if over || events.ended() {
            break;
        }
        if looked.elapsed() > LOOKED {
            looked = Instant::now();
            events.follow(system, target)?;
        }
        std::thread::sleep(EMPTIED.min(time.saturating_sub(begun.elapsed())));
    }
    if kind == Kind::Waiting {
        for (stack, weight) in waits.left(event::now()) {
            if stack.pid != 0 && stack.pid != own {
                symbols.meet(stack.pid);
                stacks.add(stack, weight);
            }
        }
    }
    let unit = if kind == Kind::Waiting { Unit::Micros } else { Unit::Samples };
    let (event, kernel, lost) = (events.name(), events.kernel(), events.lost());
    // Free the rings before symbols need memory.
    drop(events);
    Ok(Taken { folded: stacks.fold(&mut symbols, unit), unit, event, kernel, seen: stacks.seen(), lost })
}
