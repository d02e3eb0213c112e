//! Where the queues of a network interface are served.
//!
//! A [`policy`] and the machine's [`crate::topology`] give a [`plan`]: a CPU for each queue. With the
//! [`device`] as it is, a plan becomes [`setting`]s, each a file and what shall be in it. [`apply`] writes them, once
//! what was there is [`saved`].

pub mod apply;
pub mod device;
pub mod interrupts;
pub mod plan;
pub mod policy;
pub mod reasons;
pub mod saved;
pub mod setting;
pub mod write;

use std::io;

use crate::system::System;
use crate::topology::Topology;

pub use device::Device;
pub use plan::Plan;
pub use policy::Policy;
pub use reasons::reasons;
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

/// An interface, what it should be like, and what to change for that.
#[derive(Debug)]
pub struct Placed {
    /// As it is.
    pub device: Device,
    /// As it should be.
    pub plan: Plan,
    /// Each file that matters, as it is and as it should be.
    pub settings: Vec<Setting>,
}

/// Plans an interface; changes nothing.
pub fn place(
    system: &dyn System,
    topology: &Topology,
    interface: &str,
    policy: &Policy,
    steering: plan::Steering,
) -> Result<Placed, Error> {
    let device = Device::read(system, interface)?;
    let plan = Plan::new(topology, device.node, device.queues.len(), policy, steering)?;
    let settings = setting::of(system, &device, &plan)?;
    Ok(Placed { device, plan, settings })
}

/// The process that moves interrupts about on its own, if it runs.
pub fn irqbalance(system: &dyn System) -> Option<u32> {
    let pids = system.list("/proc").unwrap_or_default();
    let mut pids = pids.into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.find(|pid| system.read(&format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "irqbalance"))
}
