//! What processes do: call stacks sampled by the kernel (perf_event_open(2)), while they are on a CPU or while they wait.
//!
//! - `target`: which processes are meant.
//! - `event`: the kernel's events, and the rings that it writes them to.
//! - `record`: what is in them.
//! - `stacks`: what is kept of them, in bounds.
//! - `symbols`, `kernel`: the names of addresses.
//!
//! The kernel walks stacks by frame pointers. What is compiled without them (Debian's C library, Rust code without
//! `-C force-frame-pointers`) has the function that ran, and callers that are missing or wrong; DWARF unwinding would need a copy
//! of each stack, and is not done.

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
    /// What runs, so many times a second of a CPU's time.
    OnCpu {
        /// How many times.
        hertz: u32,
    },
    /// What waits, and for how long: each time that a thread leaves its CPU.
    Waiting,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Folded stacks, a line each, sorted: the command's name, then functions from the outermost on; those of the kernel end with
    /// `_[k]`.
    pub folded: String,
    /// What they are weighed in.
    pub unit: Unit,
    /// The event that the kernel counted.
    pub event: &'static str,
    /// Whether the kernel's own part is in it.
    pub kernel: bool,
    /// Stacks that were looked at.
    pub seen: u64,
    /// Of what the kernel wrote, what was lost since its rings were full.
    pub lost: u64,
}

/// Why nothing can be seen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such service runs.
    #[error("{0} does not run here: neither a unit nor a process is called that")]
    NoService(String),
    /// No such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// More of them than is looked at.
    #[error("{what} {most} are looked at at most, and there are {found}")]
    Many {
        /// What there is too much of.
        what: &'static str,
        /// How many are looked at.
        most: usize,
        /// How many there are.
        found: usize,
    },
    /// Not as this user.
    #[error(
        "perf events are not for this user (kernel.perf_event_paranoid is {paranoid}{}): run it as root, or with CAP_PERFMON",
        if *.waiting { ", and waiting is seen by the kernel's events alone" } else { "" }
    )]
    Denied {
        /// What the kernel is set to.
        paranoid: String,
        /// Whether waiting was asked for.
        waiting: bool,
    },
    /// The kernel has none of it.
    #[error("this kernel has no perf events for that: {0}")]
    Unsupported(#[source] io::Error),
    /// Rings of so much memory are not for this user.
    #[error(
        "cannot map the kernel's rings: {0}; kernel.perf_event_mlock_kb bounds them where one is not root"
    )]
    Rings(#[source] io::Error),
    /// Whatever else the kernel says.
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

/// How often it is looked for threads that have begun since.
const LOOKED: Duration = Duration::from_millis(250);

/// Looks at processes for so long.
///
/// # Errors
/// When there are none, or the kernel does not let us.
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
            // Nobody asks what we do ourselves, nor what a CPU does that has nothing to do.
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
    // Files of symbols take memory, and the rings are not needed any more.
    drop(events);
    Ok(Taken { folded: stacks.fold(&mut symbols, unit), unit, event, kernel, seen: stacks.seen(), lost })
}
