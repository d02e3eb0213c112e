//! The console's interface to the machine, as plain data. The program that runs the console implements it.

use std::fmt;

/// The machine that the console runs on. Calls may take a while, so they run on blocking threads.
pub trait Machine: Send + Sync + 'static {
    /// What keeps the machine from reaching its line rate.
    ///
    /// # Errors
    /// The reason if that can't be found out.
    fn doctor(&self) -> Result<Examined, String>;

    /// The CPUs that serve the queues of its network interfaces, and the counters so far.
    ///
    /// # Errors
    /// The reason if that can't be found out.
    fn queues(&self) -> Result<Queues, String>;

    /// A summary of the machine.
    fn host(&self) -> Host;

    /// Whether there is a helper for actions that need privileges.
    fn helped(&self) -> bool {
        false
    }

    /// Changes something on the machine on behalf of a user, named as in logs. Returns a sentence that says what was
    /// done.
    ///
    /// # Errors
    /// The reason if nothing was changed.
    fn change(&self, _change: &QueueChange, _by: &str) -> Result<String, String> {
        Err(UNHELPED.into())
    }

    /// Records what processes do, on behalf of a user.
    ///
    /// # Errors
    /// The reason if nothing was recorded.
    fn watch(&self, _watch: &Watch, _by: &str) -> Result<Watched, String> {
        Err(UNHELPED.into())
    }
}

/// The answer if there is no helper.
const UNHELPED: &str = "this console was started without --helper";

/// A summary of the machine. Unknown values are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Seconds since boot.
    pub uptime: Option<u64>,
    /// The running NixOS generation, on NixOS.
    pub generation: Option<String>,
    /// Memory, and how much of it is available, in bytes.
    pub memory: Option<(u64, u64)>,
    /// The version of the running image, if the machine runs one.
    pub version: Option<String>,
    /// Whether the running version is still on trial, in a few words, and which other versions may boot.
    pub trial: Option<String>,
    /// When the running version was installed, in seconds since 1970.
    pub updated: Option<u64>,
    /// The file systems that services keep their data on.
    pub disks: Vec<Disk>,
    /// The number of processes that ran or waited for a CPU, averaged over a minute.
    pub load: Option<f64>,
    /// CPUs online.
    pub cpus: Option<usize>,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// The services that keep their data on it.
    pub services: Vec<&'static str>,
    /// How much of it is free, in percent of its bytes.
    pub free_percent: u8,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// Work is slowed down or lost, or will be under load.
    Warning,
    /// The machine doesn't do its job.
    Critical,
}

impl Severity {
    /// Its name on the command line and on pages.
    pub fn label(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// What `linerate doctor` found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examined {
    /// The profile's host, if there is a profile.
    pub profile: Option<String>,
    /// The time of the check, in seconds since 1970.
    pub at: u64,
    /// The findings, worst first.
    pub findings: Vec<Finding>,
    /// Findings that have been resolved, most recent first.
    pub past: Vec<ResolvedFinding>,
    /// All rules.
    pub rules: Vec<Rule>,
}

/// Something that isn't as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule that found it.
    pub rule: String,
    /// What it concerns: a setting, an interface, a service.
    pub subject: String,
    /// How bad it is.
    pub severity: Severity,
    /// The expected state, if the profile has one.
    pub expected: Option<String>,
    /// The actual state.
    pub found: String,
    /// What it costs.
    pub cost: String,
    /// The command that fixes it.
    pub remedy: Option<String>,
    /// The share of the work that it affects, from 0 to 1.
    pub effect: Option<f64>,
    /// When it was first seen, in seconds since 1970.
    pub since: Option<u64>,
    /// How often it has begun.
    pub times: Option<u32>,
}

/// A finding that has been resolved; times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedFinding {
    /// The rule that found it.
    pub rule: String,
    /// What it concerned.
    pub subject: String,
    /// When it was first seen, the last time it began.
    pub begun: u64,
    /// When it was no longer seen.
    pub ended: u64,
    /// How often it was found.
    pub times: u32,
}

/// A rule of `linerate doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What it checks.
    pub about: &'static str,
    /// Where it gets its data.
    pub source: &'static str,
    /// Whether it had something to compare the machine with.
    pub looked: bool,
    /// What it wasn't allowed to read, if anything.
    pub denied: Option<String>,
}

/// Which CPUs serve the queues of the machine's interfaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queues {
    /// The time of the reading, in milliseconds of a monotonic clock.
    pub at_millis: u64,
    /// The interfaces that have hardware.
    pub interfaces: Vec<Interface>,
    /// The CPUs online.
    pub cpus: Vec<Cpu>,
    /// Services, and the CPUs they run on.
    pub services: Vec<(String, String)>,
    /// The process id of irqbalance, which would move interrupts away again.
    pub irqbalance: Option<u32>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its driver and location: `ena at 0000:00:05.0, node 0, 8 of 16 channels`.
    pub about: String,
    /// The policy that the plan follows.
    pub policy: String,
    /// Why there can be no plan for it.
    pub error: Option<String>,
    /// Its queues.
    pub queues: Vec<Queue>,
    /// The reasons for the plan, a sentence each.
    pub reasons: Vec<String>,
    /// How many settings differ from the plan.
    pub changes: usize,
    /// How many settings the plan has.
    pub settings: usize,
    /// Packets received and sent so far.
    pub packets: (u64, u64),
    /// Bytes received and sent so far.
    pub bytes: (u64, u64),
    /// Packets dropped so far, as the interface itself counts them.
    pub dropped: u64,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Its number.
    pub number: usize,
    /// The numbers of its interrupts.
    pub irqs: Vec<u32>,
    /// How many interrupts there have been so far.
    pub interrupts: u64,
    /// The CPUs that handle them now.
    pub cpu_now: String,
    /// The CPU that should handle them.
    pub cpu: usize,
    /// The CPUs that packets are passed on to, now and as planned.
    pub rps: Option<(String, String)>,
    /// The CPUs that send through it, now and as planned.
    pub xps: Option<(String, String)>,
}

/// A CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: usize,
    /// The lowest CPU on the same core.
    pub core: usize,
    /// Its NUMA node.
    pub node: usize,
    /// Packets that its softirqs have processed so far.
    pub processed: u64,
    /// Packets dropped because its backlog was full.
    pub dropped: u64,
    /// How often its softirqs ran out of budget.
    pub squeezed: u64,
    /// Its time in softirqs, idle, and overall, in ticks.
    pub ticks: Ticks,
}

/// How a CPU spent its time, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// In softirqs.
    pub softirq: u64,
    /// Idle or waiting for disks.
    pub idle: u64,
    /// Overall.
    pub all: u64,
}

/// A change to the placement of queues, which needs privileges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueChange {
    /// Places an interface's queues as planned.
    Apply {
        /// The interface.
        interface: String,
    },
    /// Restores the settings from before the first change.
    Undo {
        /// The interface.
        interface: String,
    },
}

/// What to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The service, or the whole machine if absent.
    pub service: Option<String>,
    /// For how long, in seconds.
    pub seconds: u64,
    /// Whether to record waiting instead of running.
    pub waiting: bool,
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Folded stacks.
    pub folded: String,
    /// The event that was sampled.
    pub event: String,
    /// Whether the kernel's own part is included.
    pub kernel: bool,
    /// How many records were lost because a ring was full.
    pub lost: u64,
}
