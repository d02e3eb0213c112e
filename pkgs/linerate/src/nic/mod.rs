//! Where the queues of a network interface are served.
//!
//! A [`policy`] and the machine's [`crate::topology`] give a [`plan`]: a CPU for each queue. With the
//! [`device`] as it is, a plan becomes [`setting`]s, each a file and what shall be in it, and an even [`rss`] table.
//! [`apply`] writes them, once what was there is [`saved`], and after a [`watch`] again; [`rings`] are kept through
//! it. [`services`] tells who runs where.

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

/// Why an interface's queues cannot be placed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// It is not one that hardware stands behind.
    #[error("{0} has no device behind it, so it has no queues to place")]
    NoDevice(String),
    /// No interface has one.
    #[error("no interface has a device behind it")]
    NoDevices,
    /// It cannot have so many queues.
    #[error("{interface} has {most} channels at most, not {wanted}")]
    Channels {
        /// Which.
        interface: String,
        /// How many were asked for.
        wanted: u32,
        /// How many it can have; 0 where its driver tells of none.
        most: u32,
    },
    /// The policy leaves no plan.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// What the kernel tells cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Where.
        path: String,
        /// Why.
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

/// An interface, what it should be like, and what to change for that.
#[derive(Debug)]
pub struct PlacementPlan {
    /// As it is.
    pub device: Device,
    /// As it should be.
    pub plan: Plan,
    /// Each file that matters, as it is and as it should be.
    pub settings: Vec<Setting>,
    /// Its RSS table, where it has one.
    pub rss: Option<Rss>,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct PlacementRequest {
    /// Which CPUs serve queues.
    pub policy: Policy,
    /// Whether queues hand packets on.
    pub steering: plan::Steering,
    /// How many queues; as many as there are unless it is said.
    pub queues: Option<u32>,
}

impl PlacementPlan {
    /// The channels that have to be set for a wish, if others are set now.
    pub fn channels(&self, wish: &PlacementRequest) -> Option<u32> {
        let now = self.device.channels.map(|channels| channels.combined);
        wish.queues.filter(|&wanted| now != Some(wanted))
    }
}

/// Plans an interface; changes nothing. Settings are those of queues that are there, however many shall be.
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

/// The process that moves interrupts about on its own, if it runs.
pub fn irqbalance(system: &dyn System) -> Option<u32> {
    let pids = system.list("/proc").unwrap_or_default();
    let mut pids = pids.into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.find(|pid| system.read(&format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "irqbalance"))
}
