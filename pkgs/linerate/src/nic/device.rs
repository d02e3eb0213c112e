//! An interface as the kernel describes it.

use std::io;

use serde::Serialize;

use super::Error;
use super::interrupts::{self, Direction};
use crate::system::{Channels, System, name_of};

/// Where the kernel lists interfaces (`Documentation/ABI/testing/sysfs-class-net`).
const INTERFACES: &str = "/sys/class/net";

/// An interface with a device behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its name.
    pub interface: String,
    /// Its driver.
    pub driver: String,
    /// Its location: a PCI address, or `virtioN`.
    pub device: String,
    /// Its NUMA node, if it has one.
    pub node: Option<usize>,
    /// Its channels, if its driver reports them.
    pub channels: Option<Channels>,
    /// Its MSI and MSI-X vectors, including those for management.
    pub vectors: usize,
    /// Its queues, by number.
    pub queues: Vec<Queue>,
}

/// A queue, or a pair of queues, with the same number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// Whether it receives packets.
    pub receives: bool,
    /// Whether it sends packets.
    pub transmits: bool,
    /// Its interrupts; none if it has to share one.
    pub interrupts: Vec<Interrupt>,
}

/// An interrupt of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Its number.
    pub irq: u32,
    /// Its name in `/proc/interrupts`.
    pub action: String,
    /// What it is for.
    pub direction: Direction,
    /// How often it has occurred on all CPUs since the driver requested it.
    pub count: u64,
}

impl Device {
    /// Reads an interface.
    pub fn read(system: &dyn System, interface: &str) -> Result<Self, Error> {
        let base = format!("{INTERFACES}/{interface}");
        // A name with a slash would lead to another path.
        if interface.is_empty() || interface.contains('/') || system.canonical(&base).is_err() {
            return Err(Error::NoInterface(interface.to_owned()));
        }
        let place =
            system.canonical(&format!("{base}/device")).map_err(|_| Error::NoDevice(interface.to_owned()))?;
        let device = name_of(&place).to_owned();
        // virtio's vectors and node are those of its PCI device.
        let bus = if device.starts_with("virtio") { format!("{place}/..") } else { place.clone() };
        let driver = system.canonical(&format!("{place}/driver")).unwrap_or_default();
        let driver = name_of(&driver).to_owned();
        let node = system.read(&format!("{bus}/numa_node")).ok();
        let vectors = system.list(&format!("{bus}/msi_irqs")).unwrap_or_default();
        let mut queues = queues(system, &base)?;
        let path = "/proc/interrupts";
        let text = system.read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        for line in interrupts::parse(&text) {
            if !vectors.contains(&line.irq.to_string()) {
                continue;
            }
            for action in line.actions {
                let found = interrupts::queue_of(&action, interface, &device, &driver);
                let Some((number, direction)) = found else { continue };
                // A driver may hold vectors for queues that aren't in use; skip these.
                let Some(queue) = queues.get_mut(number) else { continue };
                let count = line.counts.iter().sum();
                queue.interrupts.push(Interrupt { irq: line.irq, action, direction, count });
            }
        }
        Ok(Self {
            interface: interface.to_owned(),
            driver,
            device,
            // The kernel shows -1 if the firmware doesn't report a node.
            node: node.and_then(|node| node.trim().parse().ok()),
            channels: system.channels(interface).ok(),
            vectors: vectors.len(),
            queues,
        })
    }
}

/// The interfaces that have a device, sorted by name.
pub fn interfaces(system: &dyn System) -> Result<Vec<String>, Error> {
    let names =
        system.list(INTERFACES).map_err(|source| Error::Read { path: INTERFACES.to_owned(), source })?;
    let real = |name: &String| system.canonical(&format!("{INTERFACES}/{name}/device")).is_ok();
    let names: Vec<String> = names.into_iter().filter(real).collect();
    if names.is_empty() { Err(Error::NoDevices) } else { Ok(names) }
}

/// The directory of a queue: `rx-0`.
pub fn queue_path(interface: &str, direction: &str, queue: usize) -> String {
    format!("{INTERFACES}/{interface}/queues/{direction}-{queue}")
}

/// How many queues an interface receives on.
pub fn receiving(system: &dyn System, interface: &str) -> usize {
    let names = system.list(&format!("{INTERFACES}/{interface}/queues")).unwrap_or_default();
    count(&names, "rx-")
}

/// How many of the names are queues of this direction, such as `rx-`.
fn count(names: &[String], direction: &str) -> usize {
    let numbers = names.iter().filter_map(|name| name.strip_prefix(direction)?.parse::<usize>().ok());
    numbers.max().map_or(0, |highest| highest + 1)
}

/// The queues in use. sysfs shows no others.
fn queues(system: &dyn System, base: &str) -> Result<Vec<Queue>, Error> {
    let path = format!("{base}/queues");
    let names = match system.list(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(|source| Error::Read { path, source })?,
    };
    let (rx, tx) = (count(&names, "rx-"), count(&names, "tx-"));
    let queue = |number| Queue { receives: number < rx, transmits: number < tx, interrupts: Vec::new() };
    Ok((0..rx.max(tx)).map(queue).collect())
}
