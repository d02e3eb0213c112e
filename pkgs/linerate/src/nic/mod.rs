//! Decides and sets where a network interface's queues are served.
//!
//! A [`policy`] and the machine's [`crate::topology`] give a [`plan`], which has a CPU for each queue. With the current
//! [`device`], a plan becomes [`setting`]s (files and their planned contents) and an even [`rss`] table. [`apply`]
//! writes them after the original values are [`saved`], and can [`watch`] the interface to write them again. [`rings`]
//! are preserved. [`services`] finds out which services run where.

pub mod apply;
pub mod device;
pub mod interrupts;
pub mod plan;
pub mod policy;
pub mod reasons;
pub mod rings;
pub mod rss;
pub mod services;
pub mod setting;

use std::io;

use crate::system::System;
use crate::topology::Topology;

pub use apply::{saved, watch, write};
pub use device::Device;
pub use plan::Plan;
pub use policy::Policy;
pub use reasons::{headline, reasons};
pub use rss::Rss;
pub use setting::Setting;

/// Why an interface's queues can't be placed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// It has no hardware.
    #[error("{0} has no device behind it, so it has no queues to place")]
    NoDevice(String),
    /// No interface has hardware.
    #[error("no interface has a device behind it")]
    NoDevices,
    /// It can't have this many queues.
    #[error("{interface} has {most} channels at most, not {wanted}")]
    Channels {
        /// The interface.
        interface: String,
        /// How many were requested.
        wanted: u32,
        /// The most that it can have; 0 if its driver reports no channels.
        most: u32,
    },
    /// There can be no plan with this policy.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// What the kernel reports can't be read.
    #[error("{path}: {source}")]
    Read {
        /// The path.
        path: String,
        /// The reason.
        source: io::Error,
    },
}

impl Error {
    /// Whether other arguments would have helped.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Plan(error) => *error != plan::Error::NoQueues,
            Self::NoInterface(_) | Self::NoDevice(_) | Self::Channels { .. } => true,
            Self::NoDevices | Self::Read { .. } => false,
        }
    }
}

/// An interface, its planned state, and the settings to change for that.
#[derive(Debug)]
pub struct PlacementPlan {
    /// Its current state.
    pub device: Device,
    /// Its planned state.
    pub plan: Plan,
    /// Each affected file, with its current and its planned value.
    pub settings: Vec<Setting>,
    /// Its RSS table, if it has one.
    pub rss: Option<Rss>,
}

/// What is requested.
#[derive(Clone, Debug, Default)]
pub struct PlacementRequest {
    /// Which CPUs serve queues.
    pub policy: Policy,
    /// Whether queues may pass packets on to other CPUs (RPS).
    pub steering: plan::Steering,
    /// How many queues there should be. Default: as many as there are.
    pub queues: Option<u32>,
}

impl PlacementRequest {
    /// The command that places an interface's queues so.
    pub fn command(&self, interface: &str) -> String {
        let Self { policy, steering, queues } = self;
        let rps = if *steering == plan::Steering::Off { " --no-rps" } else { "" };
        let queues = queues.map_or_else(String::new, |count| format!(" --queues {count}"));
        format!("linerate nic apply {interface} --policy {policy}{rps}{queues}")
    }
}

impl PlacementPlan {
    /// The channels that have to be set for a request; none if they are already right.
    pub fn channels(&self, wish: &PlacementRequest) -> Option<u32> {
        let now = self.device.channels.map(|channels| channels.combined);
        wish.queues.filter(|&wanted| now != Some(wanted))
    }
}

/// Plans an interface without changing anything. The settings are those of the existing queues, even if another number
/// is requested.
pub fn place(
    system: &dyn System,
    topology: &Topology,
    interface: &str,
    wish: &PlacementRequest,
) -> Result<PlacementPlan, Error> {
    let device = Device::read(system, interface)?;
    if let Some(wanted) = wish.queues {
        let most = device.channels.map_or(0, |channels| channels.max_combined);
        if wanted == 0 || wanted > most {
            return Err(Error::Channels { interface: interface.to_owned(), wanted, most });
        }
    }
    let queues = wish.queues.map_or(device.queues.len(), |queues| queues as usize);
    let plan = Plan::new(topology, device.node, queues, &wish.policy, wish.steering)?;
    let settings = setting::of(system, &device, &plan)?;
    let rss = Rss::read(system, &device)?;
    Ok(PlacementPlan { device, plan, settings, rss })
}

/// The process ID of irqbalance, which moves interrupts by itself; none if it doesn't run.
pub fn irqbalance(system: &dyn System) -> Option<u32> {
    let pids = system.list("/proc").unwrap_or_default();
    let mut pids = pids.into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.find(|pid| system.read(&format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "irqbalance"))
}
