//! Preserves ring sizes, which some drivers reset to the default when channels change.

use std::collections::BTreeMap;
use std::io;

use crate::system::{Rings, System};

/// An interface's channels, and its ring sizes with these channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSizes {
    channels: u32,
    rings: Rings,
}

impl RingSizes {
    /// Reads the current state; none if the driver doesn't report it.
    pub fn now(system: &dyn System, interface: &str) -> Option<Self> {
        let channels = system.channels(interface).ok()?.combined;
        Some(Self { channels, rings: system.rings(interface).ok()? })
    }

    /// Restores the ring sizes. Returns the sizes that were set, or none if they were already right.
    pub fn put_back(&self, system: &dyn System, interface: &str) -> io::Result<Option<Rings>> {
        if system.rings(interface).is_ok_and(|now| now == self.rings) {
            return Ok(None);
        }
        system.set_rings(interface, &self.rings)?;
        Ok(Some(self.rings.clone()))
    }
}

/// Sets channels and preserves ring sizes. Returns the sizes that were set again if the driver had reset them.
pub fn set_channels(system: &dyn System, interface: &str, combined: u32) -> io::Result<Option<Rings>> {
    let before = RingSizes::now(system, interface);
    system.set_channels(interface, combined)?;
    before.map_or(Ok(None), |seen| seen.put_back(system, interface))
}

/// The last known state of interfaces. It is needed to preserve ring sizes when somebody else sets channels.
#[derive(Debug, Default)]
pub struct Memory(BTreeMap<String, RingSizes>);

impl Memory {
    /// Checks again. Ring sizes that changed together with the channels are restored; a change of the ring sizes alone
    /// is intended and kept.
    pub fn look(&mut self, system: &dyn System, interface: &str) -> io::Result<Option<Rings>> {
        let Some(now) = RingSizes::now(system, interface) else { return Ok(None) };
        let before = self.0.get(interface).filter(|before| before.channels != now.channels);
        // After a failure, the known state stays, so the next check tries again.
        let set = before.map_or(Ok(None), |before| before.put_back(system, interface))?;
        let rings = set.clone().unwrap_or(now.rings);
        self.0.insert(interface.to_owned(), RingSizes { rings, ..now });
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::system::Recorded;

    const LONG: Rings = Rings { rx: Some(4096), tx: Some(1024) };

    fn machine() -> Recorded {
        let machine: Recorded =
            "channels eth0 combined=4 max_combined=4\nrings eth0 rx=512 tx=512\n".parse().expect("a machine");
        machine.set_rings("eth0", &LONG).expect("rings");
        machine
    }

    #[test]
    fn rings_stay_as_they_are_whatever_channels_are_set() {
        let machine = machine();
        assert_eq!(set_channels(&machine, "eth0", 2).expect("set"), Some(LONG));
        assert_eq!(machine.rings("eth0").expect("rings"), LONG);
        machine.refuse("rings eth0", Errno::NOMEM, 1);
        assert!(set_channels(&machine, "eth0", 4).is_err());
        // If a driver doesn't report rings, there are none to preserve.
        let machine: Recorded = "channels eth0 combined=4 max_combined=4\n".parse().expect("a machine");
        assert_eq!(set_channels(&machine, "eth0", 2).expect("set"), None);
    }

    #[test]
    fn rings_that_somebody_elses_channels_took_along_are_put_back_and_others_are_kept() {
        let machine = machine();
        let mut memory = Memory::default();
        assert_eq!(memory.look(&machine, "eth0").expect("a look"), None);
        machine.set_channels("eth0", 2).expect("channels");
        assert_eq!(machine.rings("eth0").expect("rings").rx, Some(512));
        assert_eq!(memory.look(&machine, "eth0").expect("a look"), Some(LONG));
        assert_eq!(memory.look(&machine, "eth0").expect("a look"), None);
        // Somebody sets the rings, and then the channels.
        let short = Rings { rx: Some(256), tx: Some(256) };
        machine.set_rings("eth0", &short).expect("rings");
        assert_eq!(memory.look(&machine, "eth0").expect("a look"), None);
        machine.set_channels("eth0", 4).expect("channels");
        assert_eq!(memory.look(&machine, "eth0").expect("a look"), Some(short));
    }
}
